package endurance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core"
)

const (
	callersTime   = 100 * time.Millisecond // what a caller's context allows for
	callersReturn = 150 * time.Millisecond // when he is back
)

// silences has callers with little time ask an engine whose store does not answer.
var silences = figure{
	number: 11, name: "SilentStoreReturnsCallersInTime", full: 10_000, few: 100, alone: true,
	needs: []need{stalling},
	try: func(l *lane, n int) {
		s := &silent{lane: l, engine: l.engine(l.h.Driver)}
		s.silence(100)
		s.quiet()
		before := inventory()
		resume := l.undone(l.h.Stall())
		l.rounds(n, 100, func(_, n int) { s.callers(n) })
		resume()
		s.quiet()
		// A pool of connections may have grown up to its size; a leak goes on.
		for range 7 {
			if s.settles(before) {
				return
			}
			before = inventory()
			s.silence(100)
			s.quiet()
		}
		if !s.settles(before) {
			l.t.Errorf("%v after a silence of 100 calls: %+v, before it %+v, and so after each one", settled, inventory(), before)
		}
	},
	text: func(r *record) string {
		return fmt.Sprintf("%s calls with 100ms against a silent store: all back in time, 0 goroutines or connections leaked; longest %s", count(r.done), r.most())
	},
}

type silent struct {
	*lane
	engine *core.Engine
}

func (s *silent) silence(callers int) {
	resume := s.undone(s.h.Stall())
	defer resume()
	s.callers(callers)
}

// callers ask all at once, for keys of their own and for shared ones, to wait or not.
func (s *silent) callers(n int) {
	each(n, func(i int) {
		key, wait := numbered("silence", i), time.Duration(0)
		if i%2 == 0 {
			key = numbered("silence", i%10)
		}
		if i%4 < 2 {
			wait = core.Forever
		}
		ctx, cancel := context.WithTimeout(context.Background(), callersTime)
		defer cancel()
		asked := time.Now()
		lease, err := s.engine.Acquire(ctx, core.Policy{Key: key, Wait: wait})
		s.waited(s.t, asked, time.Now(), callersReturn, "a call with 100ms while the store was silent")
		switch {
		case err == nil:
			s.t.Error("success while the store is silent")
			_ = lease.Release(ctx)
		case !errors.Is(err, context.DeadlineExceeded):
			s.t.Errorf("a call with 100ms while the store was silent returned %v, not DeadlineExceeded", err)
		}
	})
}

// quiet waits until the store has answered for the keys, behind what was left of those
// who had given up.
func (s *silent) quiet() {
	each(100, func(i int) {
		h, err := s.hold(s.engine, numbered("silence", i), s.long())
		if err != nil {
			s.t.Errorf("acquire after a silence: %v", err)
			return
		}
		s.leave(h, "a lease after a silence")
	})
}

// stock is what a process must not have more and more of.
type stock struct{ goroutines, connections int }

// inventory counts. Connections are 0 where there is no /proc.
func inventory() stock {
	now := stock{goroutines: runtime.NumGoroutine()}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return now
	}
	for _, f := range files {
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", f.Name())); err == nil && strings.HasPrefix(to, "socket:") {
			now.connections++
		}
	}
	return now
}

// settled is how long what was given up may go on: an attempt of the engine's for three.
const settled = 4 * time.Second

// settles waits until there is no more than before, and reports whether that comes.
func (s *silent) settles(before stock) bool {
	end := time.Now().Add(settled)
	for now := inventory(); now.goroutines > before.goroutines || now.connections > before.connections; now = inventory() {
		if time.Now().After(end) {
			return false
		}
		yield()
	}
	return true
}
