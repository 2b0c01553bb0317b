package manager

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
)

// stubbornStore refuses every try of an acquisition, which its driver repeats until the context ends.
type stubbornStore struct {
	driver.Driver
	cause error
}

func (d *stubbornStore) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	return stubbornSession{s, c.Sink, d.cause}, err
}

type stubbornSession struct {
	driver.Session // and no driver.Prompt
	sink           driver.Sink
	cause          error
}

func (s stubbornSession) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	driver.Failed(s.sink, r.ID, s.cause)
	<-ctx.Done()
	return driver.Grant{}, ctx.Err()
}

func TestCallerIsToldWhyTheStoreHasDoneNothing(t *testing.T) {
	cause := &driver.RefusedError{Err: errors.New("read-only")}
	synctest.Test(t, func(t *testing.T) {
		mgr := openManager(t, &stubbornStore{memlock.New(), cause})
		for _, wait := range []time.Duration{0, 10 * time.Millisecond, mgr.StoreTimeout, 2 * mgr.StoreTimeout} {
			terms, patience := testTerms(t, wait), wait
			if wait == 0 {
				patience = mgr.StoreTimeout
			}
			_, r := mgr.Acquire(t.Context(), terms, "k", patience, nil)
			if r == nil || r.Why != Unavailable || !errors.Is(r.Cause, cause) {
				t.Errorf("wait %v: refused with %+v, want %v", wait, r, cause)
			}
			_, r = mgr.AcquireAll(t.Context(), terms, []string{"k", "l"}, patience, nil)
			if r == nil || r.Why != Unavailable || !errors.Is(r.Cause, cause) {
				t.Errorf("two keys, wait %v: refused with %+v, want %v", wait, r, cause)
			}
		}
	})
}
