package manager

import (
	"reflect"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

func TestStepFollowsFromTheSituation(t *testing.T) {
	next := &Terms{TTL: 8 * time.Second} // a hold needs 0.75 s at least
	minHold := &Terms{TTL: 8 * time.Second, MinHold: time.Second}
	whole := &Terms{TTL: 8 * time.Second, NoRenew: true} // 7.1 s
	usual := situation{next: next, left: 5 * time.Second}
	nobody := situation{left: 5 * time.Second}
	grant := situation{next: next, left: 5 * time.Second, fresh: true}
	stays := situation{left: 5 * time.Second, linger: time.Second, room: true}
	share := situation{next: next, left: 5 * time.Second, mode: driver.Shared, held: true}
	for _, tc := range []struct {
		name string
		of   situation
		with func(*situation)
		want step
	}{
		{"handed on", usual, nil, stepServe},
		{"handed on while others wait", usual, func(s *situation) { s.contended = true }, stepServe},
		{"handed on while others wait, on an old word", usual, func(s *situation) { s.contended, s.stale = true, true }, stepServe},
		{"the turn is over", usual, func(s *situation) { s.contended, s.turnOver = true, true }, stepReplace},
		{"and the next one is asked for", usual, func(s *situation) { s.contended, s.turnOver, s.asking = true, true, true }, stepReturn},
		{"the word is old", usual, func(s *situation) { s.stale = true }, stepRefresh},
		{"little is left", usual, func(s *situation) { s.left = 700 * time.Millisecond }, stepRefresh},
		{"nothing is left", usual, func(s *situation) { s.left = 0 }, stepReplace},
		{"too little is left for the whole TTL", usual, func(s *situation) { s.next = whole }, stepRefresh},
		{"the tokens are spent", usual, func(s *situation) { s.spent = true }, stepReplace},
		{"the next hold counts from a grant", usual, func(s *situation) { s.next = minHold }, stepReplace},
		{"it was lowered", usual, func(s *situation) { s.lowered = true }, stepReplace},
		{"a share is not handed on", usual, func(s *situation) { s.mode = driver.Shared }, stepReplace},
		{"the hold had a MinHold", usual, func(s *situation) { s.minHold = time.Second }, stepReturn},
		{"the manager closes", usual, func(s *situation) { s.closing = true }, stepReturn},

		{"renewed", usual, func(s *situation) { s.renewed = true }, stepServe},
		{"renewed, and the word is as old as the question", usual, func(s *situation) { s.renewed, s.stale = true, true }, stepServe},
		{"renewed for too short", usual, func(s *situation) { s.renewed, s.left = true, 700*time.Millisecond }, stepReplace},
		{"renewed for less than the whole TTL", usual, func(s *situation) { s.renewed, s.next = true, whole }, stepServe},
		{"not renewed", usual, func(s *situation) { s.renewed, s.failed = true, true }, stepReplace},
		{"not renewed, and the next one is asked for", usual, func(s *situation) { s.renewed, s.failed, s.asking = true, true, true }, stepReturn},
		{"renewed, and others have waited enough", usual, func(s *situation) { s.renewed, s.contended, s.turnOver = true, true, true }, stepReplace},
		{"renewed for nobody", nobody, func(s *situation) { s.renewed = true }, stepReturn},

		{"granted", grant, nil, stepServe},
		{"granted as a share", grant, func(s *situation) { s.mode = driver.Shared }, stepServe},
		{"granted to a MinHold", grant, func(s *situation) { s.next = minHold }, stepServe},
		{"granted while others wait", grant, func(s *situation) { s.contended, s.turnOver = true, true }, stepServe},
		{"granted with little left", grant, func(s *situation) { s.left = 700 * time.Millisecond }, stepRefresh},
		{"granted to nobody", grant, func(s *situation) { s.next = nil }, stepReturn},
		{"granted to a closing manager", grant, func(s *situation) { s.closing = true }, stepReturn},

		{"wanted by nobody", nobody, nil, stepReturn},
		{"may stay", stays, nil, stepLinger},
		{"may stay, and is wanted", stays, func(s *situation) { s.next = next }, stepServe},
		{"may stay, without room", stays, func(s *situation) { s.room = false }, stepReturn},
		{"may stay, and others wait", stays, func(s *situation) { s.contended = true }, stepReturn},
		{"may stay, and was lowered", stays, func(s *situation) { s.lowered = true }, stepReturn},
		{"may stay, and the tokens are spent", stays, func(s *situation) { s.spent = true }, stepReturn},
		{"may stay, and has ended", stays, func(s *situation) { s.left = 0 }, stepReturn},
		{"has stayed", stays, func(s *situation) { s.linger = 0 }, stepReturn},

		{"joined", share, nil, stepServe},
		{"joined by nobody", share, func(s *situation) { s.next = nil }, stepStay},
		{"joined while others wait", share, func(s *situation) { s.contended = true }, stepStay},
		{"joined by a MinHold", share, func(s *situation) { s.next = minHold }, stepStay},
		{"closed", share, func(s *situation) { s.closed = true }, stepStay},
		{"joined after the last token", share, func(s *situation) { s.spent = true }, stepStay},
		{"joined on an old word", share, func(s *situation) { s.stale = true }, stepRefresh},
		{"joined with little left", share, func(s *situation) { s.left = 700 * time.Millisecond }, stepRefresh},
		{"joined after a renewal", share, func(s *situation) { s.renewed, s.stale = true, true }, stepServe},
		{"not renewed for who joins", share, func(s *situation) { s.renewed, s.failed = true, true }, stepClose},
		{"renewed for too short for who joins", share, func(s *situation) { s.renewed, s.left = true, 700*time.Millisecond }, stepClose},
		{"held alone", share, func(s *situation) { s.mode = driver.Exclusive }, stepStay},
	} {
		s := tc.of
		if tc.with != nil {
			tc.with(&s)
		}
		if got := s.decide(); got != tc.want {
			t.Errorf("%s: step %d, want %d, in %+v", tc.name, got, tc.want, s)
		}
	}
}

// What must be true of every step, in every situation that there could be.
func TestNoSituationMakesAStepThatBreaksARule(t *testing.T) {
	var flags []int
	kind := reflect.TypeFor[situation]()
	for i := range kind.NumField() {
		if kind.Field(i).Type.Kind() == reflect.Bool {
			flags = append(flags, i)
		}
	}
	seen := make(map[step]int)
	for _, next := range []*Terms{nil, {TTL: 4 * time.Second}, {TTL: 4 * time.Second, MinHold: time.Second}, {TTL: 4 * time.Second, NoRenew: true}} {
		for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared, driver.Semaphore} {
			for _, left := range []time.Duration{0, 700 * time.Millisecond, 2 * time.Second, 4 * time.Second} {
				for _, ended := range []struct{ minHold, linger time.Duration }{{0, 0}, {time.Second, 0}, {0, time.Second}} {
					for bits := range 1 << len(flags) {
						s := situation{next: next, mode: mode, left: left, minHold: ended.minHold, linger: ended.linger}
						set := []*bool{&s.held, &s.fresh, &s.spent, &s.contended, &s.turnOver, &s.stale, &s.lowered, &s.closed, &s.asking, &s.closing, &s.room, &s.renewed, &s.failed}
						if len(set) != len(flags) {
							t.Fatalf("%d of %d flags are tried", len(set), len(flags))
						}
						for i, flag := range set {
							*flag = bits&(1<<i) != 0
						}
						got := s.decide()
						seen[got]++
						if broken := ruleBroken(s, got); broken != "" {
							t.Fatalf("step %d %s, in %+v", got, broken, s)
						}
					}
				}
			}
		}
	}
	for st := stepStay; st <= stepClose; st++ {
		if seen[st] == 0 {
			t.Errorf("no situation has step %d", st)
		}
	}
	t.Logf("situations by step: %v", seen)
}

func ruleBroken(s situation, got step) string {
	serves := got == stepServe
	switch {
	case serves && s.next == nil:
		return "serves nobody"
	case serves && s.left < s.next.least():
		return "begins a hold on too little"
	case serves && s.held && (s.mode != driver.Shared || s.contended || s.closed || s.next.MinHold > 0):
		return "lets somebody in beside a holder"
	case serves && !s.held && !s.fresh && (s.spent || s.turnOver):
		return "passes those who have waited enough, or has no token left"
	case serves && !s.held && s.minHold > 0:
		return "breaks off a MinHold"
	case serves && !s.held && s.closing:
		return "begins a hold on a closing manager"
	case serves && !s.renewed && !s.contended && s.stale && (s.held || !s.fresh):
		return "goes by an old word"
	case got == stepLinger && (s.next != nil || s.contended || s.left <= 0 || s.minHold > 0 || !s.room):
		return "keeps what is wanted, has ended or must not be kept"
	case got == stepReplace && s.asking:
		return "asks twice"
	case s.held && (got == stepReturn || got == stepReplace || got == stepLinger):
		return "ends a lease that somebody holds"
	case s.held && got == stepClose && !s.renewed:
		return "closes a share without having asked"
	}
	return ""
}
