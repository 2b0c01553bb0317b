package etcdlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// poll is how often a waiter looks for itself at what it would have heard of. With the
// time of an answer it stays below wake.
const poll = 800 * time.Millisecond

// patient is how long a waiter waits before it listens for the end of its own place,
// which is rare. Most are served sooner, and a grant asks for the place itself.
const patient = 100 * time.Millisecond

// firstRenewal is how long a grant waits for the renewal that it was sent with.
const firstRenewal = 100 * time.Millisecond

// wait waits for the turn of the owner's place in q.
func (e *enrolment) wait(ctx context.Context, q queue) (driver.Grant, error) {
	said := false
	stop := func() {}
	defer func() { stop() }()
	for {
		own, before := q.find(e.names.place)
		switch {
		case own == nil || own.stage == kept || e.create != 0 && own.create != e.create:
			if own == nil {
				e.suspect(&q)
			}
			return driver.Grant{}, driver.ErrPlaceLost
		case own.stage == holding: // by a request whose answer was lost
			return e.take(ctx, own.create, own.token, false)
		}
		e.observe(before)
		if e.create == 0 { // it does not change, and what listens reads it
			e.create = own.create
		}
		woken := true
		if admits(own.place, before) {
			if err := e.outlast(ctx); err != nil {
				return driver.Grant{}, err
			}
		} else {
			if !said {
				said = true
				stop = e.live(ctx)
				e.s.sink.Waiting(e.r.ID)
			}
			if err := e.rest(ctx, watches(own.place, before), q.rev); err != nil {
				return driver.Grant{}, err
			}
			woken = false
		}
		next, g, err := e.ask(ctx, woken)
		if err != nil {
			return driver.Grant{}, err
		}
		if g != nil {
			return *g, nil
		}
		q = next
	}
}

// ask takes the lease if it is the owner's turn, and reads the queue otherwise. sure
// says that it is. Without that, only who excludes all others takes it in the same
// step: if nobody came before.
func (e *enrolment) ask(ctx context.Context, sure bool) (queue, *driver.Grant, error) {
	e.late = e.refresh(ctx)
	for {
		before := e.sights()
		r, err := e.commit(ctx, sure, before)
		switch {
		case absent(err):
			return queue{}, nil, driver.ErrPlaceLost
		case passing(err) && ctx.Err() == nil && e.alive():
			continue // reach has taken its time
		case err != nil:
			return queue{}, nil, err
		case !r.Succeeded || !sure && e.r.Mode != driver.Exclusive:
			q, err := queueOf(r)
			if err == nil {
				e.judge(before, q.has, r.Responses)
			}
			return q, nil, err
		}
		others, err := othersWait(r.Responses[len(r.Responses)-1].GetResponseRange(), e.names.place)
		if err != nil {
			return queue{}, nil, err
		}
		g, err := e.take(ctx, e.create, r.Header.Revision, others)
		return queue{}, &g, err
	}
}

func (e *enrolment) commit(ctx context.Context, sure bool, before sights) (*clientv3.TxnResponse, error) {
	read := append(before.read(), e.names.read())
	if !sure && e.r.Mode != driver.Exclusive {
		return e.s.commit(ctx, nil, read, nil)
	}
	ifs := []clientv3.Cmp{e.names.untouched(e.create)}
	if !sure {
		ifs = append(append(ifs, e.names.all(">", e.create-1)), before.live()...)
	}
	then := []clientv3.Op{e.names.write(e.place(holding), e.now().id), e.names.newest()}
	return e.write(ctx, ifs, then, read)
}

// rest returns when what is watched has changed, or may have.
func (e *enrolment) rest(ctx context.Context, w watched, rev int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stirred := kit.NewSignal()
	e.s.Start(func() {
		// Nothing is missed: the watch begins at the revision of the reading.
		if kit.Sleep(ctx, patient) {
			e.hear(ctx, watched{name: e.names.place}, rev, stirred.Set)
		}
	})
	e.s.Start(func() { e.hear(ctx, w, rev, stirred.Set) })
	e.s.Start(func() { e.look(ctx, w, rev, stirred.Set) })

	end := time.NewTimer(e.left())
	defer end.Stop()
	for {
		select {
		case <-stirred:
			return nil
		case <-ctx.Done():
			return ended(ctx)
		case <-end.C:
		}
		left := e.left()
		if left <= 0 {
			return errors.New("etcd: the cluster has not answered for so long that the place in the queue may be gone")
		}
		end.Reset(left)
	}
}

// hear listens for what is watched, from the revision after rev on. A watch that ends,
// for compaction, a lost leader or a lost right, is no reason to believe anything: the
// waiter reads the queue again.
func (e *enrolment) hear(ctx context.Context, w watched, rev int64, stir func()) {
	name, options := w.name, []clientv3.OpOption{clientv3.WithRev(rev + 1)}
	if name == "" {
		name, options = e.names.queue, append(options, clientv3.WithPrefix())
	}
	for r := range e.s.d.client.Watch(clientv3.WithRequireLeader(ctx), name, options...) {
		if r.Err() != nil {
			break
		}
		for _, event := range r.Events {
			e.moved(event)
			// Whoever has come later changes nothing for those before.
			if event.Type == mvccpb.Event_DELETE || w.puts && event.Kv.CreateRevision <= e.create {
				stir()
				return
			}
		}
	}
	if kit.Sleep(ctx, time.Duration((0.5+rand.Float64())*float64(maxPause))) {
		stir()
	}
}

// look is for what was not heard: it asks, from time to time, for what is watched and
// for the owner's own place, and how long the leases of those before last.
func (e *enrolment) look(ctx context.Context, w watched, rev int64, stir func()) {
	ops := []clientv3.Op{clientv3.OpGet(e.names.place, clientv3.WithKeysOnly()), e.names.read()}
	if w.name != "" {
		ops[1] = clientv3.OpGet(w.name)
		if w.head != "" {
			ops = append(ops, clientv3.OpGet(w.head))
		}
	}
	for pause := patient; kit.Sleep(ctx, pause); pause = poll {
		before := e.sights()
		if w.name != "" { // of others it is not seen whether they are there
			before = slices.DeleteFunc(before, func(s sight) bool { return s.name != w.name && s.name != w.head })
		}
		r, err := e.s.commit(ctx, nil, slices.Concat(ops, before.read()), nil)
		if err != nil {
			continue
		}
		var kvs []*mvccpb.KeyValue
		for _, read := range r.Responses[1:len(ops)] {
			kvs = append(kvs, read.GetResponseRange().Kvs...)
		}
		e.judge(before, among(kvs), r.Responses[len(ops):])
		if len(r.Responses[0].GetResponseRange().Kvs) == 0 {
			stir()
			return
		}
		there, changed := 0, false
		for _, kv := range r.Responses[1].GetResponseRange().Kvs {
			if kv.CreateRevision < e.create {
				there++
				changed = changed || w.puts && kv.ModRevision > rev
			}
		}
		if changed || there != w.places {
			stir()
			return
		}
		e.sight(ctx)
	}
}

// among reports whether a place is among those that were read.
func among(kvs []*mvccpb.KeyValue) func(name string, create int64) bool {
	return func(name string, create int64) bool {
		return slices.ContainsFunc(kvs, func(kv *mvccpb.KeyValue) bool {
			return string(kv.Key) == name && kv.CreateRevision == create
		})
	}
}

// live keeps the place's lease alive while the owner waits, until stop is called.
func (e *enrolment) live(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	e.s.Start(func() {
		for {
			t := e.now()
			third := time.Duration((0.28 + 0.04*rand.Float64()) * float64(inSeconds(t.seconds)))
			if !kit.Sleep(ctx, time.Until(t.sent.Add(third))) {
				return
			}
			if err := e.prolong(ctx); absent(err) || err != nil && !kit.Sleep(ctx, maxPause) {
				return
			}
		}
	})
	return cancel
}

// prolong renews the place's lease.
func (e *enrolment) prolong(ctx context.Context) error {
	id := e.now().id
	t, err := e.s.keepAlive(ctx, id)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.term.id != id: // the place is on another one by now
	case absent(err):
		e.gone = true
	case err == nil && t.sent.After(e.term.sent):
		t.used = e.term.used
		e.term = t
	}
	return err
}

// now returns the lease that the place is on, with what is known of its end.
func (e *enrolment) now() term {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.term
}

// refresh renews the place's lease, if that was long ago, so that it begins anew with
// the grant. The channel is closed when that is done, or has failed.
func (e *enrolment) refresh(ctx context.Context) (done chan struct{}) {
	done = make(chan struct{})
	if t := e.now(); time.Since(t.sent) < inSeconds(t.seconds)/10 {
		close(done)
		return done
	}
	e.s.Start(func() {
		defer close(done)
		_ = e.prolong(ctx) // the lease goes on as it was
	})
	return done
}

// left is how long the place is there for certain.
func (e *enrolment) left() time.Duration {
	t := e.now()
	return driver.Remaining(t.deadline(inSeconds(t.seconds)), time.Now())
}

func (e *enrolment) alive() bool {
	e.mu.Lock()
	gone := e.gone
	e.mu.Unlock()
	return !gone && e.left() > 0
}
