package sqllock

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// listenLoop listens on the session's channel, and reconnects when the connection breaks.
func (s *session) listenLoop() {
	ctx := s.Open
	for pause := 20 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, time.Second) {
		ended := make(chan bool, 1)
		s.Start(func() { // Listen may ignore ctx
			var worked atomic.Bool
			listen, err := s.hearing.begin(), errors.New("Listen has ended its goroutine")
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("Listen has panicked: %v", p)
				}
				s.hearing.end(err)
				ended <- worked.Load()
			}()
			err = s.notifications.Listen(ctx, channel(s.id), func() {
				s.claims.wakeAllWaiters() // notifications sent before are lost
				if !worked.Swap(true) {
					s.Start(func() { s.tellItself(listen) })
				}
			}, func(payload string) {
				if payload == echo {
					s.hearing.heard(listen)
					return
				}
				s.handleNotification(payload)
			})
		})
		select {
		case worked := <-ended:
			if worked {
				pause = 20 * time.Millisecond
			}
		case <-ctx.Done():
			return
		}
		kit.Sleep(ctx, time.Duration((0.5+mathrand.Float64())*float64(pause)))
	}
}

// handleNotification handles one notification. It ignores unknown ones: the next poll finds
// out anyway.
func (s *session) handleNotification(payload string) {
	kind, of, ok := parsePayload(payload)
	if !ok {
		return
	}
	c := &s.claims
	c.mu.Lock()
	own := c.byHash[of]
	if own == nil {
		c.mu.Unlock()
		return
	}
	id, held, releasing := own.id, own.held, !own.releaseAskedAt.IsZero()
	switch {
	case kind == notifyGranted && !held:
		own.wake.Set()
	case kind == notifyKept && !held:
		c.expectExpiry(time.Now())
	}
	if kind == notifyContended {
		c.hear(own, true)
	}
	if kind == notifyLost && held && !releasing {
		c.forgetLocked(id.Owner)
	}
	c.mu.Unlock()
	switch {
	case kind == notifyContended && held:
		s.sink.Contended(id, true)
	case kind == notifyLost && held && !releasing:
		s.sink.Lost(id, errTaken)
	}
}

// echo is the payload that a session sends to itself.
const echo = "echo"

// hearing is whether notifications reach a session. They do not if its LISTEN went through a transaction
// pooler, which gives the connection to others right after, or to another database.
type hearing struct {
	mu      sync.Mutex
	now     hears
	listen  int           // how many LISTENs have ended, which is the number of the next
	told    bool          // the session has sent itself something that should come by it
	missed  int           // how many have ended like that, one after the other
	err     error         // of the one that ended last
	changed chan struct{} // closed at the next change
}

// hears says whether a session hears of what is sent to it.
type hears uint8

const (
	unheard hears = iota // it has not been found out, or there is no LISTEN
	heard
	deaf
)

// begin returns the number of the next LISTEN. One that hears nothing is followed by another such, until it
// is known better.
func (h *hearing) begin() (listen int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.listen
}

// end notes that a LISTEN has ended. A pooler that ends each soon is no better than one that keeps them.
func (h *hearing) end(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listen, h.err = h.listen+1, err
	if h.now == heard {
		h.now = unheard
	} else if h.told {
		if h.missed++; h.missed >= maxMissed {
			h.set(deaf)
		}
	}
	h.told = false
}

// maxMissed is how many LISTENs may end before what was sent to them has come.
const maxMissed = 3

// goesOn reports whether a LISTEN is the latest still.
func (h *hearing) goesOn(listen int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.listen == listen
}

// tell notes that something was sent that should come by a LISTEN.
func (h *hearing) tell(listen int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = h.told || h.listen == listen
}

// heard notes that it has come.
func (h *hearing) heard(listen int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listen == listen {
		h.missed = 0
		h.set(heard)
	}
}

// silent notes that it has not come in time.
func (h *hearing) silent(listen int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now == unheard && h.listen == listen {
		h.set(deaf)
	}
}

// trouble is why the session does not listen.
func (h *hearing) trouble() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return fmt.Errorf("the connection of WithNotifications does not listen: %w", h.err)
	}
	return errors.New("the connection of WithNotifications does not listen yet")
}

// set changes what is known. The caller has locked h.
func (h *hearing) set(now hears) {
	if h.now = now; h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

func (h *hearing) get() (now hears, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return h.now, h.changed
}

// tellItself sends a notification to the session, and notes whether it comes by a LISTEN.
func (s *session) tellItself(listen int) {
	for s.hearing.goesOn(listen) {
		_, _, err := runAttempt(s.Ctx, s, s.Closing, func(ctx context.Context, _ *attempt) (struct{}, error) {
			_, err := s.exec(ctx, s.d.sql(s.q.notify), channel(s.id), echo)
			return struct{}{}, err
		})
		if err == nil {
			s.hearing.tell(listen)
			if s.awaitHearing(s.Open, s.timeout) == unheard && s.Open.Err() == nil {
				s.hearing.silent(listen)
			}
			return
		}
		if !kit.Sleep(s.Open, time.Second) {
			return
		}
	}
}

// awaitHearing waits until it is known whether the session hears, for so long at most.
func (s *session) awaitHearing(ctx context.Context, most time.Duration) hears {
	limit := time.NewTimer(most)
	defer limit.Stop()
	for {
		now, changed := s.hearing.get()
		if now != unheard {
			return now
		}
		select {
		case <-changed:
		case <-limit.C:
			return unheard
		case <-ctx.Done():
			return unheard
		case <-s.Closing:
			return unheard
		}
	}
}

// sessionID identifies a session. It is random.
type sessionID [16]byte

func newSessionID() (n sessionID) {
	_, _ = rand.Read(n[:]) // never fails: crypto/rand aborts the program instead
	return n
}

// notification is the payload of a NOTIFY, and the channel it goes to.
type notification struct{ channel, payload string }

// The kinds of notification. Each is followed by the hash of the owner that it is for.
const (
	notifyGranted   = 'g' // it was granted the key
	notifyContended = 'w' // somebody else waits for the key, or has asked for it
	notifyLost      = 'l' // its lease was ousted
	notifyKept      = 'k' // the lease that it waits for now ends at another time
)

// channel returns the channel on which a session listens.
func channel(n sessionID) string { return "lockaround_" + hex.EncodeToString(n[:]) }

// ownerHash identifies an owner in a notification, without disclosing the owner to others
// who listen.
func ownerHash(o driver.Owner) string {
	sum := sha256.Sum256(o[:])
	return hex.EncodeToString(sum[:8])
}

// parsePayload splits a payload into its kind and the hash of its owner.
func parsePayload(payload string) (kind byte, of string, ok bool) {
	const length = 1 + 16
	if len(payload) != length {
		return 0, "", false
	}
	switch payload[0] {
	case notifyGranted, notifyContended, notifyLost, notifyKept:
		return payload[0], payload[1:], true
	}
	return 0, "", false
}
