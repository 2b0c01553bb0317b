package main

import (
	"slices"
	"time"

	"github.com/lockaround/lockaround/core" //nolint:depguard // it is tried as users have it: by its engine
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/lab/faults/history"
)

// Each key has terms of its own, as far as the store offers them: what callers of all
// processes have to agree on, and what else they ask for now and then.
//
//   - account-1 lingers, and is one of several keys;
//   - account-2 is kept for a while, and is one of several keys;
//   - account-3 has readers, writers, and a semaphore's holders among both;
//   - account-4 is served strictly in turn, readers as well, so that no process hands it
//     on to its own callers.
const (
	room     = 3 // of the semaphore
	linger   = 200 * time.Millisecond
	longKeep = 80 * time.Millisecond
)

// terms are what a client asks for this time.
func (c *caller) terms() core.Policy {
	p := core.Policy{TTL: c.ttl(), NoRenew: c.chance.IntN(8) == 0}
	if c.chance.IntN(4) == 0 {
		p.Release = core.Sent
	}
	chance := c.chance.IntN(8)
	switch c.key {
	case keyName(0):
		switch {
		case chance < 2:
			p.Linger = c.between(linger/8, linger)
		case chance == 2:
			p.Keys = c.several()
		}
	case keyName(1):
		switch {
		case chance < 2 && c.caps.Keep:
			p.MinHold = c.between(longKeep/8, longKeep)
		case chance == 2:
			p.Keys = c.several()
		}
	case keyName(2):
		switch {
		case chance < 3 && c.offers(core.Shared):
			p.Mode = core.Shared
		case chance < 5 && c.offers(core.Semaphore):
			p.Mode, p.Limit = core.Semaphore, room
		}
	case keyName(3):
		if c.caps.Strict {
			p.Fairness = core.Strict
		}
		if chance < 2 && c.offers(core.Shared) {
			p.Mode = core.Shared
		}
	}
	if p.Keys == nil {
		p.Key = c.key
	}
	return p
}

// several are the keys that are asked for together, in any order.
func (c *caller) several() []string {
	keys := []string{keyName(0), keyName(1)}
	if c.chance.IntN(2) == 0 {
		slices.Reverse(keys)
	}
	return keys
}

func (c *caller) offers(m driver.Mode) bool { return slices.Contains(c.caps.Modes, m) }

// modeOf is a mode as the history has it.
func modeOf(m core.Mode) string {
	switch m {
	case core.Shared:
		return history.Shared
	case core.Semaphore:
		return history.Semaphore
	}
	return ""
}
