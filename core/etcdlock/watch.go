package etcdlock

import (
	"context"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/internal/kit"
)

// startWatches watches the leases that are held for watchDelay, and tells the sink of their events.
func (s *session) startWatches() {
	c := &s.claims
	c.mu.Lock()
	defer c.mu.Unlock()
	for now := time.Now(); len(c.unwatched) > 0; c.unwatched = c.unwatched[1:] {
		cl := c.unwatched[0]
		c.unwatched[0] = nil
		if cl.stopped {
			continue
		}
		if left := watchDelay - now.Sub(cl.granted); left > 0 {
			c.unwatched[0] = cl
			time.AfterFunc(left, s.startWatches)
			return
		}
		ctx, cancel := context.WithCancel(s.Open)
		cl.cancelWatch = cancel
		s.Start(func() { s.watch(ctx, cl) })
	}
	c.unwatched = nil
}

// watch tells the sink when a lease has ended and when others wait for its key.
func (s *session) watch(ctx context.Context, cl *claim) {
	if cl.unsaid {
		s.Start(func() { s.say(ctx, cl) })
	}
	rev := cl.readAt.Load()
	for s.readEvents(ctx, cl, &rev) {
		// The watch has ended: by a compaction, a lost leader or a revoked permission. Read
		// what it has missed.
		if !kit.Sleep(ctx, maxPause) {
			return
		}
		r, err := s.commit(ctx, nil, []clientv3.Op{clientv3.OpGet(cl.names.place), cl.names.newest()}, nil)
		if err != nil {
			continue
		}
		if !sameAs(r.Responses[0].GetResponseRange().Kvs, cl.create) {
			s.lose(cl)
			return
		}
		if others, err := othersWait(r.Responses[1].GetResponseRange(), cl.names.place); err == nil {
			s.setContended(cl, others, r.Header.Revision)
		}
		rev = r.Header.Revision
	}
}

// say writes to the place of a lease that its owner has it, and since when. If it fails, a renewal that
// writes says so.
func (s *session) say(ctx context.Context, cl *claim) {
	if err := cl.lockWriting(ctx); err != nil {
		return
	}
	defer cl.unlockWriting()
	s.claims.mu.Lock()
	on, p, releasing := cl.leases[len(cl.leases)-1], cl.place, cl.releasing
	s.claims.mu.Unlock()
	if releasing {
		return
	}
	if contended, _, err := s.touch(ctx, cl, etcdLease{id: on, used: true}, p, true); err == nil {
		s.setContended(cl, contended, cl.readAt.Load())
	}
}

// sameAs reports whether kvs is the place that was created at that revision.
func sameAs(kvs []*mvccpb.KeyValue, create int64) bool {
	return len(kvs) > 0 && kvs[0].CreateRevision == create
}

// readEvents handles the events from the revision after rev on, and advances rev. It returns
// false if the lease has ended or ctx has.
func (s *session) readEvents(ctx context.Context, cl *claim, rev *int64) bool {
	watchCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := s.client.Watch(clientv3.WithRequireLeader(watchCtx), cl.names.prefix, clientv3.WithPrefix(), clientv3.WithRev(*rev+1))
	for r := range events {
		if r.Err() != nil {
			break
		}
		recheck := false
		for _, event := range r.Events {
			*rev = event.Kv.ModRevision
			name, deleted := string(event.Kv.Key), event.Type == mvccpb.Event_DELETE
			switch {
			case name == cl.names.place && deleted:
				s.lose(cl)
				return false
			case name == cl.names.place:
			case !strings.HasPrefix(name, cl.names.queue):
				if !deleted {
					s.sink.Contended(cl.id, true) // from a request that would not wait
				}
			case deleted:
				recheck = true
			default:
				if p, err := parsePlace(string(event.Kv.Value)); err == nil && p.stage == waiting {
					s.setContended(cl, true, *rev)
				} else {
					recheck = true
				}
			}
		}
		if recheck {
			s.recheckContended(ctx, cl)
		}
	}
	return ctx.Err() == nil
}

// lose ends a lease that has ended at etcd, and tells the sink.
func (s *session) lose(cl *claim) {
	s.claims.mu.Lock()
	current := s.claims.byID[cl.id] == cl && !cl.releasing
	s.claims.mu.Unlock()
	if !current || !s.claims.end(cl.id, notHeld) {
		return
	}
	s.giveBackLeases(cl, false) // the place alone may have been deleted
	s.sink.Lost(cl.id, errLeaseEnded)
}

// setContended tells the sink whether others wait, as etcd said at that revision, if that has changed.
func (s *session) setContended(cl *claim, others bool, rev int64) {
	if _, changed := s.claims.hear(cl, others, rev); changed {
		s.sink.Contended(cl.id, others)
	}
}

// recheckContended reads whether others still wait, after a place has gone.
func (s *session) recheckContended(ctx context.Context, cl *claim) {
	s.claims.mu.Lock()
	contended := cl.contended
	s.claims.mu.Unlock()
	if !contended {
		return
	}
	r, err := s.commit(ctx, nil, []clientv3.Op{cl.names.newest()}, nil)
	if err != nil {
		return
	}
	if others, err := othersWait(r.Responses[0].GetResponseRange(), cl.names.place); err == nil && !others {
		s.setContended(cl, false, r.Header.Revision)
	}
}
