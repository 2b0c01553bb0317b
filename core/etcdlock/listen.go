package etcdlock

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// settled is how long a lease is held before its key is watched. Most are released
// sooner. Nothing is missed: the watch begins at the revision of the grant.
const settled = 20 * time.Millisecond

// listen tells the sink what becomes of a lease, until stop is called.
func (s *session) listen(cl *claim) (stop func()) {
	ctx, cancel := context.WithCancel(s.Open)
	timer := time.AfterFunc(settled, func() {
		s.Start(func() { s.follow(ctx, cl) })
	})
	return func() {
		timer.Stop()
		cancel()
	}
}

// follow hears of a lease's end, and of others who want its key.
func (s *session) follow(ctx context.Context, cl *claim) {
	rev := cl.token
	for s.hear(ctx, cl, &rev) {
		// The watch has ended: it was compacted away, its member has lost the leader,
		// or a right was taken. What it has missed is read.
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
			s.contend(cl, others)
		}
		rev = r.Header.Revision
	}
}

// sameAs reports whether the place that was read is the one created then.
func sameAs(kvs []*mvccpb.KeyValue, create int64) bool {
	return len(kvs) > 0 && kvs[0].CreateRevision == create
}

// hear watches from the revision after rev on, and moves rev. It returns false if
// there is nothing more to hear.
func (s *session) hear(ctx context.Context, cl *claim, rev *int64) bool {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	events := s.d.client.Watch(clientv3.WithRequireLeader(watching), cl.names.room, clientv3.WithPrefix(), clientv3.WithRev(*rev+1))
	for r := range events {
		if r.Err() != nil {
			break
		}
		recount := false
		for _, event := range r.Events {
			*rev = event.Kv.ModRevision
			name, gone := string(event.Kv.Key), event.Type == mvccpb.Event_DELETE
			switch {
			case name == cl.names.place && gone:
				s.lose(cl)
				return false
			case name == cl.names.place:
			case !strings.HasPrefix(name, cl.names.queue):
				if !gone {
					s.sink.Contended(cl.id, true) // somebody who would not wait
				}
			case gone:
				recount = true
			default:
				if p, err := parsePlace(string(event.Kv.Value)); err == nil && p.stage == waiting {
					s.contend(cl, true)
				} else {
					recount = true
				}
			}
		}
		if recount {
			s.recount(ctx, cl)
		}
	}
	return ctx.Err() == nil
}

// lose tells that a lease has ended at the server.
func (s *session) lose(cl *claim) {
	s.claims.mu.Lock()
	current := s.claims.byID[cl.id] == cl && !cl.ending
	s.claims.mu.Unlock()
	if !current || !s.claims.end(cl.id, over) {
		return
	}
	s.giveBack(cl, false) // the place may have been deleted by itself
	s.sink.Lost(cl.id, errEnded)
}

// contend tells whether others wait, if that has changed.
func (s *session) contend(cl *claim, others bool) {
	s.claims.mu.Lock()
	changed := cl.contended != others
	cl.contended = others
	s.claims.mu.Unlock()
	if changed {
		s.sink.Contended(cl.id, others)
	}
}

// recount asks whether others still wait, after somebody has left.
func (s *session) recount(ctx context.Context, cl *claim) {
	s.claims.mu.Lock()
	said := cl.contended
	s.claims.mu.Unlock()
	if !said {
		return
	}
	r, err := s.commit(ctx, nil, []clientv3.Op{cl.names.newest()}, nil)
	if err != nil {
		return
	}
	if others, err := othersWait(r.Responses[0].GetResponseRange(), cl.names.place); err == nil && !others {
		s.contend(cl, false)
	}
}

// isLost says of an error, or of its absence, whether a lease is no more.
func isLost(err error) bool { return absent(err) || errors.Is(err, driver.ErrNotHeld) }
