package decorator_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/queue"
)

func TestItemAndItsSequenceAreInOneTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTill(t)
		f := decorator.SerialTx(s.Engine, refundPolicy, s.db, queue.NewMemory(), func(ctx context.Context, tx *sql.Tx, _ refund) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO refunds`)
			return err
		}, decorator.SerialPolicy{})
		work(t, f)
		place, err := f.Enqueue(t.Context(), refund{ID: "1", OrderID: "A"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		// The token, the item's sequence, the effect, the next one's sequence.
		if got, want := s.All("release"), "begin admit admit exec admit check commit"; got != want {
			t.Errorf("%s; want %s", got, want)
		}
		if st, err := f.Status(t.Context(), place.ID); err != nil || st.State != queue.Ended {
			t.Errorf("status %+v, %v; want it done", st, err)
		}
	})
}

func TestItemThatIsCommittedIsNotRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTill(t)
		s.On("admit", func(context.Context) error {
			if s.Count("admit")%2 == 0 { // the sequence, after the token
				return fence.ErrStale
			}
			return nil
		})
		f := decorator.SerialTx(s.Engine, refundPolicy, s.db, queue.NewMemory(), func(context.Context, *sql.Tx, refund) error {
			t.Error("the function runs again")
			return nil
		}, decorator.SerialPolicy{})
		work(t, f)
		place, err := f.Enqueue(t.Context(), refund{ID: "1", OrderID: "A"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got, want := s.All("release"), "begin admit admit rollback"; got != want {
			t.Errorf("%s; want %s", got, want)
		}
		if st, err := f.Status(t.Context(), place.ID); err != nil || st.State != queue.Ended {
			t.Errorf("status %+v, %v; want it done", st, err)
		}
	})
}

func TestSerialThatCannotWorkIsRefused(t *testing.T) {
	s := newTill(t)
	store := queue.NewMemory()
	run := func(context.Context, refund) error { return nil }
	bad := func(change func(*core.Policy, *decorator.SerialPolicy)) func() error {
		return func() error {
			p, sp := refundPolicy, decorator.SerialPolicy{}
			change(&p, &sp)
			_, err := decorator.NewSerial(s.Engine, p, store, run, sp)
			return err
		}
	}
	longest := core.MaxKeyLength - len("serial/.") - len(queue.Digest("")) // of a Name
	named := func(length int) error {
		p := refundPolicy
		p.Name = strings.Repeat("n", length)
		_, err := decorator.NewSerialTx(s.Engine, p, s.db, store, func(context.Context, *sql.Tx, refund) error { return nil }, decorator.SerialPolicy{})
		return err
	}
	if err := named(longest); err != nil {
		t.Errorf("a Name of %d bytes: %v", longest, err)
	}
	type (
		policy = *core.Policy
		serial = *decorator.SerialPolicy
	)
	for want, try := range map[string]func() error{
		"several Keys":         bad(func(p policy, _ serial) { p.Key, p.Keys = "", []string{"a:{OrderID}", "b:{OrderID}"} }),
		"Mode is shared":       bad(func(p policy, _ serial) { p.Mode = core.Shared }),
		"Wait is 1s":           bad(func(p policy, _ serial) { p.Wait = time.Second }),
		"Reentrant":            bad(func(p policy, _ serial) { p.Reentrant = true }),
		"NoRenew":              bad(func(p policy, _ serial) { p.NoRenew = true }),
		"MinHold":              bad(func(p policy, _ serial) { p.MinHold = time.Second }),
		"no field":             bad(func(p policy, _ serial) { p.Key = "refund:{Oder}" }),
		"Spacing is 2ns":       bad(func(_ policy, sp serial) { sp.Spacing = 2 }),
		"Attempts is -1":       bad(func(_ policy, sp serial) { sp.Attempts = -1 }),
		"OnDead is 7":          bad(func(_ policy, sp serial) { sp.OnDead = 7 }),
		"MaxLength is -1":      bad(func(_ policy, sp serial) { sp.MaxLength = -1 }),
		"MaxBytes is -1":       bad(func(_ policy, sp serial) { sp.MaxBytes = -1 }),
		"Workers is -1":        bad(func(_ policy, sp serial) { sp.Workers = -1 }),
		"KeepFor is 1ms":       bad(func(_ policy, sp serial) { sp.KeepFor = time.Millisecond }),
		"Backoff is from 1m0s": bad(func(_ policy, sp serial) { sp.Backoff = decorator.Backoff{Least: time.Minute, Most: time.Second} }),
		"store is nil": func() error {
			_, err := decorator.NewSerial(s.Engine, refundPolicy, nil, run, decorator.SerialPolicy{})
			return err
		},
		"function is nil": func() error {
			_, err := decorator.NewSerial[refund](s.Engine, refundPolicy, store, nil, decorator.SerialPolicy{})
			return err
		},
		"cannot be encoded": func() error {
			_, err := decorator.NewSerial(s.Engine, refundPolicy, store, func(context.Context, struct {
				OrderID string
				Done    chan int
			},
			) error {
				return nil
			}, decorator.SerialPolicy{})
			return err
		},
		"Database.DB is nil": func() error {
			_, err := decorator.NewSerialTx(s.Engine, refundPolicy, decorator.Database{}, store, func(context.Context, *sql.Tx, refund) error { return nil }, decorator.SerialPolicy{})
			return err
		},
		"Name has 997 bytes": func() error { return named(longest + 3) },
	} {
		t.Run(want, func(t *testing.T) {
			if err := try(); !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v; want a core.ErrPolicy with %q", err, want)
			}
		})
	}
}

func TestCallThatCannotBeQueuedIsAClearError(t *testing.T) {
	s := newRefundShop(t)
	f := s.process(decorator.SerialPolicy{MaxBytes: 50}, nil)
	for name, tc := range map[string]struct {
		in   refund
		id   string
		want error
	}{
		"no key":      {refund{}, "1", core.ErrKey},
		"too large":   {refund{OrderID: "A", ID: strings.Repeat("x", 50)}, "1", queue.ErrItem},
		"no ID":       {refund{OrderID: "A"}, "", queue.ErrItem},
		"an ID of 1k": {refund{OrderID: "A"}, strings.Repeat("i", 1000), queue.ErrItem},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := f.Enqueue(t.Context(), tc.in, decorator.ItemID(tc.id)); !errors.Is(err, tc.want) || strings.Contains(err.Error(), "xxx") {
				t.Errorf("%v; want %v", err, tc.want)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Work(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Work ended with %v", err)
	}
}
