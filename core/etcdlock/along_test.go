package etcdlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
	"github.com/lockaround/lockaround/core/testservers"
)

// travelling is a session whose acquisitions take releases along.
type travelling struct {
	*session
	*testing.T
	proxy *etcdtest.Proxy
}

func newTravelling(t *testing.T) *travelling {
	server := testservers.Etcd(t)
	proxy := etcdtest.NewProxy(t, server.Addr())
	s, err := New(etcdtest.Client(t, proxy.Addr())).Open(driver.Config{Sink: deaf{}, StoreTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &travelling{s.(*session), t, proxy}
}

type deaf struct{}

func (deaf) Waiting(driver.ID)         {}
func (deaf) Contended(driver.ID, bool) {}
func (deaf) Lost(driver.ID, error)     {}

func requestFor(key string) driver.Request {
	r := driver.Request{ID: driver.ID{Key: key}, TTL: 10 * time.Minute}
	_, _ = rand.Read(r.Owner[:]) // never fails: crypto/rand ends the program instead
	return r
}

func (s *travelling) take(key string) driver.Grant {
	s.Helper()
	g, err := s.Acquire(s.T.Context(), requestFor(key))
	if err != nil {
		s.Fatal(err)
	}
	return g
}

// leave takes the keys, and puts their places among those that are to be deleted. It sends nothing.
func (s *travelling) leave(keys ...string) (left []*ending) {
	s.Helper()
	for _, key := range keys {
		g := s.take(key)
		cl := s.claims.get(g.ID)
		s.claims.beginRelease(cl, g.Deadline, time.Now())
		left = append(left, &ending{names: cl.names, done: make(chan struct{})})
	}
	s.endings.mu.Lock()
	defer s.endings.mu.Unlock()
	s.endings.queue = append(s.endings.queue, left...)
	return left
}

// places is how many places a key has.
func (s *travelling) places(key string) int {
	s.Helper()
	q, err := s.queue(s.T.Context(), names{queue: keyPrefixOf(key) + queuePart})
	if err != nil {
		s.Fatal(err)
	}
	return len(q.entries)
}

func (s *travelling) requests() int {
	return s.proxy.Count("/etcdserverpb.KV/Txn") + s.proxy.Count("/etcdserverpb.KV/DeleteRange")
}

// deleted waits until a place has been deleted.
func (s *travelling) deleted(e *ending) {
	s.Helper()
	select {
	case <-e.done:
	case <-time.After(time.Minute):
		s.Fatalf("the place %q was never deleted", e.names.place)
	}
	if !e.deleted && !e.uncertain || e.err != nil {
		s.Errorf("the deletion of %q says deleted %v, uncertain %v, %v", e.names.place, e.deleted, e.uncertain, e.err)
	}
}

func TestAcquisitionTakesReleasesAlong(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		before    func(*travelling)
		refused   bool
		more      int // requests than one, at most
		uncertain bool
	}{
		{name: "when it is granted"},
		{name: "when the key is taken", before: func(s *travelling) { s.take("k") }, refused: true},
		{name: "whose etcd lease had ended", before: func(s *travelling) {
			s.spares.add(etcdLease{id: 7, seconds: 600, sent: time.Now()})
		}, more: 2}, // the releases and the acquisition, apart
		{name: "whose answer is lost", before: func(s *travelling) {
			s.proxy.DropReply(func(r etcdtest.Request) bool { return r.Method == "/etcdserverpb.KV/Txn" })
		}, more: 2, uncertain: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newTravelling(t)
			left := s.leave("a", "b")
			if tt.before != nil {
				tt.before(s)
			}
			before := s.requests()
			g, err := s.Acquire(t.Context(), requestFor("k"))
			var held *driver.HeldError
			if errors.As(err, &held) != tt.refused || err == nil == tt.refused {
				t.Fatalf("the acquisition returns %v", err)
			}
			if !tt.refused && g.Token == 0 {
				t.Error("the grant has no token")
			}
			for _, e := range left {
				s.deleted(e)
				if e.uncertain != tt.uncertain {
					t.Errorf("uncertain is %v, want %v", e.uncertain, tt.uncertain)
				}
			}
			if n := s.requests() - before; n > 1+tt.more {
				t.Errorf("the acquisition and the releases took %d requests, want at most %d", n, 1+tt.more)
			}
			if s.places("a")+s.places("b") != 0 || s.places("k") != 1 {
				t.Errorf("etcd has %d, %d and %d places", s.places("a"), s.places("b"), s.places("k"))
			}
		})
	}
}

// etcd compares before it deletes: the acquisition would find the key taken, and wait for nobody.
func TestAcquisitionDoesNotTakeAlongAReleaseOfItsKey(t *testing.T) {
	t.Parallel()
	s := newTravelling(t)
	e := s.leave("k")[0]
	before := s.requests()
	var held *driver.HeldError
	if _, err := s.Acquire(t.Context(), requestFor("k")); !errors.As(err, &held) {
		t.Errorf("the acquisition of a key that is not released yet returns %v", err)
	}
	if n := s.requests() - before; n != 1 || s.places("k") != 1 {
		t.Errorf("after %d requests the key has %d places, want 1 and 1", n, s.places("k"))
	}
	s.endings.putBack(s.session, nil, false)
	s.deleted(e)
	s.take("k")
}

func TestAcquisitionTakesNoneAlongWhereEtcdRefusesSoManyOperations(t *testing.T) {
	t.Setenv("ETCD_MAX_TXN_OPS", "8")
	s := newTravelling(t)
	var keys []string
	for i := range 2 * maxAlong {
		keys = append(keys, fmt.Sprint("k", i))
	}
	left := s.leave(keys...)
	s.take("k")
	for _, e := range left {
		s.deleted(e)
		if e.uncertain {
			t.Error("what etcd has refused is uncertain")
		}
	}
	e, before := s.leave("a")[0], s.requests()
	s.take("b")
	if n := s.requests() - before; n != 1 || s.places("a") != 1 {
		t.Errorf("the next acquisition took %d requests, and the key whose release waited has %d places; want 1 and 1", n, s.places("a"))
	}
	s.endings.putBack(s.session, nil, false)
	s.deleted(e)
}

func TestReleaseIsMadeThoughTheCallerIsGoneWhoSentIt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		send func(context.Context, *travelling) error
	}{
		{"an acquisition", func(ctx context.Context, s *travelling) error {
			_, err := s.Acquire(ctx, requestFor("k"))
			return err
		}},
		{"another release", func(ctx context.Context, s *travelling) error {
			_, _, err := s.delete(ctx, names{queue: "la1/k/q/", place: "la1/k/q/1"})
			return err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newTravelling(t)
			one, other := s.take("k"), s.take("a")
			for i, err := range s.Release(t.Context(), []driver.Ending{{ID: one.ID, Deadline: one.Deadline}, {ID: other.ID, Deadline: other.Deadline}}) {
				if err != nil {
					t.Fatal(i, err)
				}
			} // leaves a spare for each
			e := s.leave("a")[0]
			resume := s.proxy.Stall()
			ctx, goAway := context.WithCancel(t.Context())
			gone, before := make(chan error), s.requests()
			go func() { gone <- tt.send(ctx, s) }()
			for s.requests() == before {
				runtime.Gosched() // until it is on its way
			}
			goAway()
			if err := <-gone; !errors.Is(err, context.Canceled) {
				t.Errorf("the caller that went away is told %v", err)
			}
			resume()
			s.deleted(e)
			if !e.uncertain || s.places("a") != 0 {
				t.Errorf("uncertain is %v, and the key has %d places", e.uncertain, s.places("a"))
			}
		})
	}
}
