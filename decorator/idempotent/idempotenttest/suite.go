// Package idempotenttest is the conformance suite for the stores of package idempotent, this module's own
// and anybody else's.
//
//	func TestConformance(t *testing.T) {
//		server := startServer(t) // stopped by t.Cleanup
//		idempotenttest.Run(t, func(*testing.T) idempotent.Store { return myrecords.New(server.Addr()) })
//	}
//
// Each check is a subtest named after the promise it tests. Keys are random, so that stores may share a
// server. Where something must have ended, the suite waits for it and no longer; where something must
// stand, it is for an hour. So no check fails because a machine is slow. The suite is itself tested: with one
// mistake switched on, a store fails the checks that are meant to notice.
package idempotenttest

import (
	"crypto/rand"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/decorator/idempotent"
)

// Run runs every check, in parallel with each other. newStore is called once for each.
func Run(t *testing.T, newStore func(t *testing.T) idempotent.Store) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(&fixture{t, newStore(t), rand.Text()})
		})
	}
}

// RunInBubble is [Run] for a store in the memory of this process, whose time goes by package
// testing/synctest.
func RunInBubble(t *testing.T, newStore func(t *testing.T) idempotent.Store) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.test(&fixture{t, newStore(t), rand.Text()}) })
		})
	}
}

// fixture is a store for one check, and a key of it.
type fixture struct {
	*testing.T
	store idempotent.Store
	key   string
}

const hour = time.Hour

func claim(run byte, token int64, alone time.Duration) idempotent.Claim {
	return idempotent.Claim{Run: idempotent.Run{run}, Token: token, Fingerprint: [32]byte{7}, Alone: alone, Keep: 2 * hour}
}

// begin begins, and checks what was there before.
func (f *fixture) begin(c idempotent.Claim, want idempotent.Record) {
	f.Helper()
	r, err := f.store.Begin(f.Context(), f.key, c)
	if err != nil {
		f.Fatalf("begin: %v", err)
	}
	if r.State != want.State || r.Run != want.Run || r.Token != want.Token || string(r.Answer) != string(want.Answer) ||
		(r.State != idempotent.None) != (r.Fingerprint == [32]byte{7}) || (r.Alone > 0) != (want.Alone > 0) || r.Alone > want.Alone+time.Second {
		f.Fatalf("there was %+v before, want %+v", r, want)
	}
}

func (f *fixture) superseded(c idempotent.Claim) {
	f.Helper()
	if r, err := f.store.Begin(f.Context(), f.key, c); !errors.Is(err, idempotent.ErrSuperseded) {
		f.Fatalf("begin: %+v, %v; want ErrSuperseded", r, err)
	}
}

func (f *fixture) finish(c idempotent.Claim, answer string, want bool) {
	f.Helper()
	if stored, err := f.store.Finish(f.Context(), f.key, c, []byte(answer)); err != nil || stored != want {
		f.Fatalf("finish: %v, %v; want %v", stored, err, want)
	}
}

func (f *fixture) giveUp(c idempotent.Claim) {
	f.Helper()
	if err := f.store.GiveUp(f.Context(), f.key, c); err != nil {
		f.Fatalf("give up: %v", err)
	}
}

// until begins with c, again and again, until what was there before satisfies over. A minute is what
// milliseconds never take.
func (f *fixture) until(c idempotent.Claim, over func(idempotent.Record) bool) {
	f.Helper()
	for from := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		r, err := f.store.Begin(f.Context(), f.key, c)
		switch {
		case err != nil:
			f.Fatalf("begin: %v", err)
		case over(r):
			return
		case time.Since(from) > time.Minute:
			f.Fatalf("there is still %+v", r)
		}
	}
}

var none idempotent.Record

func begunBy(run byte, token int64, alone time.Duration) idempotent.Record {
	return idempotent.Record{State: idempotent.Begun, Run: idempotent.Run{run}, Token: token, Alone: alone}
}

func doneBy(run byte, token int64, answer string) idempotent.Record {
	return idempotent.Record{State: idempotent.Done, Run: idempotent.Run{run}, Token: token, Answer: []byte(answer)}
}

// checks are in the order in which a call comes to what they are about.
var checks = []struct {
	name string
	test func(*fixture)
}{
	{"FirstBeginsAndOthersSeeIt", func(f *fixture) {
		f.begin(claim(1, 0, hour), none)
		f.begin(claim(1, 0, hour), begunBy(1, 0, hour))
		f.begin(claim(2, 0, hour), begunBy(1, 0, hour))
	}},
	{"NobodyTakesOverWhileTheFirstIsAlone", func(f *fixture) {
		f.begin(claim(1, 0, hour), none)
		f.begin(claim(2, 9, hour), begunBy(1, 0, hour))
		f.finish(claim(2, 9, hour), "2", false)
		f.finish(claim(1, 5, hour), "1", true)
	}},
	{"LaterTokenTakesOverWhenTheFirstIsNotAloneAnyMore", func(f *fixture) {
		f.begin(claim(1, 0, time.Millisecond), none)
		f.until(claim(2, 9, hour), func(r idempotent.Record) bool { return r.Run == idempotent.Run{2} })
		f.begin(claim(3, 0, hour), begunBy(2, 9, 0))
		f.finish(claim(1, 5, hour), "1", false)
		f.finish(claim(2, 9, hour), "2", true)
		f.begin(claim(3, 10, hour), doneBy(2, 9, "2"))
	}},
	{"OwnTokenIsTakenAtOnce", func(f *fixture) {
		f.begin(claim(1, 0, hour), none)
		f.begin(claim(1, 5, hour), begunBy(1, 0, hour))
		f.begin(claim(2, 0, hour), begunBy(1, 5, 0))
	}},
	{"EarlierTokenIsSuperseded", func(f *fixture) {
		f.begin(claim(1, math.MaxInt64, hour), none)
		f.superseded(claim(2, math.MaxInt64-1, hour))
		f.begin(claim(3, 0, hour), begunBy(1, math.MaxInt64, 0))
	}},
	{"ClaimWithoutATokenTakesNothingOver", func(f *fixture) {
		f.begin(claim(1, 5, hour), none)
		f.begin(claim(2, 0, hour), begunBy(1, 5, 0))
		f.finish(claim(2, 0, hour), "2", false)
	}},
	{"AnotherFingerprintTakesNothingOver", func(f *fixture) {
		f.begin(claim(1, 5, hour), none)
		other := claim(2, 6, hour)
		other.Fingerprint = [32]byte{8}
		f.begin(other, begunBy(1, 5, 0))
		f.finish(other, "2", false)
	}},
	{"FirstAnswerOfARunCounts", func(f *fixture) {
		f.begin(claim(1, 0, hour), none)
		f.finish(claim(1, 5, hour), "first", true)
		f.finish(claim(1, 5, hour), "again", true)
		f.begin(claim(2, 0, hour), doneBy(1, 5, "first"))
	}},
	{"AnswersAreAnyBytes", func(f *fixture) {
		for _, answer := range []string{"", "\x00\xff\n", string(make([]byte, 300<<10))} {
			f.key = rand.Text()
			f.begin(claim(1, 0, hour), none)
			f.finish(claim(1, 5, hour), answer, true)
			f.begin(claim(2, 0, hour), doneBy(1, 5, answer))
		}
	}},
	{"KeysAreAnyStrings", func(f *fixture) {
		base := f.key
		for _, key := range []string{base + "a", base + "A", base + "\x00", base + " ", base + "é", ""} {
			if f.key = key; key == "" {
				_ = f.store.Forget(f.Context(), key)
			}
			f.begin(claim(1, 5, hour), none)
		}
	}},
	{"AnswerIsStoredThoughTheStoreHasForgottenTheRun", func(f *fixture) {
		f.finish(claim(1, 5, hour), "1", true)
		f.begin(claim(2, 0, hour), doneBy(1, 5, "1"))
	}},
	{"GivenUpRunsAgain", func(f *fixture) {
		f.begin(claim(1, 0, hour), none)
		f.giveUp(claim(1, 0, hour))
		f.begin(claim(2, 0, hour), none)
		f.giveUp(claim(1, 0, hour)) // a late copy
		f.begin(claim(3, 0, hour), begunBy(2, 0, hour))
	}},
	{"LateCopiesOfAGivenUpRunDoNothing", func(f *fixture) {
		f.begin(claim(1, 0, hour), none)
		f.giveUp(claim(1, 0, hour))
		f.superseded(claim(1, 0, hour))
		f.superseded(claim(1, 5, hour))
		f.finish(claim(1, 5, hour), "1", false)
		f.begin(claim(2, 0, hour), none)
	}},
	{"GivingUpLeavesAnAnswer", func(f *fixture) {
		f.begin(claim(1, 0, hour), none)
		f.finish(claim(1, 5, hour), "1", true)
		f.giveUp(claim(1, 5, hour))
		f.begin(claim(2, 0, hour), doneBy(1, 5, "1"))
	}},
	{"ForgottenRunsAgain", func(f *fixture) {
		for _, done := range []bool{true, false} {
			f.begin(claim(1, 5, hour), none)
			if done {
				f.finish(claim(1, 5, hour), "1", true)
			}
			if err := f.store.Forget(f.Context(), f.key); err != nil {
				f.Fatal(err)
			}
		}
		f.begin(claim(2, 0, hour), none)
	}},
	{"RecordsEnd", func(f *fixture) {
		short := claim(1, 5, time.Millisecond)
		short.Keep = 20 * time.Millisecond
		f.begin(short, none)
		f.until(claim(2, 0, hour), func(r idempotent.Record) bool { return r.State == idempotent.None })
		f.begin(claim(3, 0, hour), begunBy(2, 0, hour))
	}},
	{"BadClaimsAreRefused", func(f *fixture) {
		for _, change := range []func(*idempotent.Claim){
			func(c *idempotent.Claim) { c.Run = idempotent.Run{} },
			func(c *idempotent.Claim) { c.Token = -1 },
			func(c *idempotent.Claim) { c.Alone = 0 },
			func(c *idempotent.Claim) { c.Keep = c.Alone - 1 },
			func(c *idempotent.Claim) { c.Keep = idempotent.MaxKeep + 1 },
		} {
			c := claim(1, 5, hour)
			change(&c)
			_, begin := f.store.Begin(f.Context(), f.key, c)
			_, finish := f.store.Finish(f.Context(), f.key, c, nil)
			if giveUp := f.store.GiveUp(f.Context(), f.key, c); begin == nil || finish == nil || giveUp == nil {
				f.Errorf("%+v: %v, %v, %v", c, begin, finish, giveUp)
			}
		}
		f.begin(claim(1, 5, hour), none)
	}},
	{"OneOfManyBegins", func(f *fixture) {
		const many = 32
		got := make(chan idempotent.Record, many)
		for i := range many {
			go func() {
				r, err := f.store.Begin(f.Context(), f.key, claim(byte(i+1), 0, hour))
				if err != nil {
					f.Error(err)
				}
				got <- r
			}()
		}
		began := 0
		for range many {
			if r := <-got; r.State == idempotent.None {
				began++
			}
		}
		if began != 1 {
			f.Errorf("%d have begun", began)
		}
	}},
}
