package memlock_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

// The test that the package documentation shows: minutes pass at once in a bubble.
func TestHandlerGivesUpOnASilentStoreWithinItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New() // in the bubble, whose clock it goes by
		locks, err := core.New(store, core.WithNamespace("shop"))
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		s, routes := newShop(locks)

		store.Stall()
		begun := time.Now()
		if status := buy(routes); status != http.StatusServiceUnavailable {
			t.Errorf("a silent store: %d, want 503", status)
		}
		if took := time.Since(begun); took > patience {
			t.Errorf("the buyer waited %v, want the policy's %v at most", took, patience)
		}
		if s.left != 10 {
			t.Errorf("%d are left, want 10: nothing runs unlocked", s.left)
		}
	})
}

// A lease that is not renewed, because the store is silent, ends at its deadline.
func TestHandlerLosesItsLeaseAtTheDeadlineOfASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		locks, err := core.New(store, core.WithNamespace("shop"))
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		s, routes := newShop(locks)

		s.read = func() int {
			store.Stall()
			time.Sleep(core.DefaultTTL) // a slow database, in no time
			return s.left
		}
		status := buy(routes)
		store.Heal()
		if status != http.StatusInternalServerError || s.left != 10 {
			t.Errorf("%d, %d left; want 500 and 10: a late sale writes nothing", status, s.left)
		}
	})
}
