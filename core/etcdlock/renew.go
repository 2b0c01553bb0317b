package etcdlock

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// Renew extends leases.
func (s *session) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	out := make([]driver.Renewed, len(rs))
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	defer leave()
	each(len(rs), func(i int) { out[i] = s.renew(ctx, rs[i]) })
	return out
}

// renew extends one lease.
func (s *session) renew(ctx context.Context, r driver.Renewal) driver.Renewed {
	cl, ended := s.claims.find(r.ID)
	switch {
	case ended != 0:
		return driver.Renewed{Err: driver.ErrNotHeld}
	case cl == nil:
		var err error
		if cl, err = s.findOfOtherSession(ctx, r.ID, r.Ref, r.Token); err != nil {
			return driver.Renewed{Err: err}
		}
	}
	out := s.extend(ctx, cl, r)
	switch {
	case out.Err == nil:
		out.Contended, _ = s.claims.hear(cl, out.Contended, cl.readAt.Load()) // an event may be newer
	case isLost(out.Err):
		out.Err = driver.ErrNotHeld
		s.claims.mu.Lock()
		current := s.claims.byID[r.ID] == cl && !cl.releasing
		s.claims.mu.Unlock()
		if current && s.claims.end(r.ID, notHeld) {
			s.giveBackLeases(cl, false)
		}
	}
	return out
}

// extend renews the etcd lease that the owner's place is on. It reads the queue too: the place
// alone may have been deleted, and others may wait behind it.
func (s *session) extend(ctx context.Context, cl *claim, r driver.Renewal) driver.Renewed {
	if err := cl.lockWriting(ctx); err != nil {
		return driver.Renewed{Err: err}
	}
	defer cl.unlockWriting()
	s.claims.mu.Lock()
	releasing, on, p := cl.releasing, cl.leases[len(cl.leases)-1], cl.place
	known, single := cl.seconds, len(cl.leases) == 1
	s.claims.mu.Unlock()
	if releasing {
		return driver.Renewed{Err: driver.ErrNotHeld}
	}
	lower := r.Share && p.mode == driver.Exclusive
	if lower {
		p.mode = driver.Shared
	}
	if known == 0 || known >= seconds(r.TTL) && single {
		out, l := s.keepAliveAndRead(ctx, cl, on, p, lower, r)
		if out.Err != nil || l.seconds >= seconds(r.TTL) {
			return out
		}
	}
	return s.move(ctx, cl, p, r)
}

// keepAliveAndRead keeps the etcd lease alive and, at the same time, reads or lowers the place.
func (s *session) keepAliveAndRead(ctx context.Context, cl *claim, on clientv3.LeaseID, p place, lower bool, r driver.Renewal) (driver.Renewed, etcdLease) {
	var l etcdLease
	var keepAliveErr error
	both := make(chan struct{})
	s.Start(func() {
		defer close(both)
		l, keepAliveErr = s.keepAlive(ctx, on)
	})
	contended, _, err := s.touch(ctx, cl, etcdLease{id: on, used: true}, p, lower)
	<-both // ends with ctx, like the other
	switch {
	case err == nil && keepAliveErr != nil:
		err = keepAliveErr
	case isLost(keepAliveErr):
		err = keepAliveErr
	}
	if err != nil {
		return driver.Renewed{Err: err}, l
	}
	s.claims.mu.Lock()
	cl.seconds, cl.sent, cl.place = l.seconds, l.sent, p
	s.claims.mu.Unlock()
	return driver.Renewed{Deadline: l.deadline(r.TTL), Contended: contended}, l
}

// move puts the place on a longer etcd lease, since a lease of etcd cannot be made longer.
func (s *session) move(ctx context.Context, cl *claim, p place, r driver.Renewal) driver.Renewed {
	l, err := s.newLease(ctx, r.TTL)
	if err != nil {
		return driver.Renewed{Err: err}
	}
	s.claims.mu.Lock()
	before := cl.leases
	if cl.releasing {
		s.claims.mu.Unlock()
		s.owe(debt{leases: []clientv3.LeaseID{l.id}, used: true}, r.TTL)
		return driver.Renewed{Err: driver.ErrNotHeld}
	}
	cl.leases = append(before[:len(before):len(before)], l.id)
	s.claims.mu.Unlock()

	p.ttl = max(p.ttl, r.TTL)
	contended, _, err := s.touch(ctx, cl, l, p, true)
	if err != nil && !isLost(err) {
		return driver.Renewed{Err: err} // the place is on one of the two leases
	}
	s.claims.mu.Lock()
	releasing := cl.releasing
	if err == nil && !releasing {
		cl.leases, cl.seconds, cl.sent, cl.place = []clientv3.LeaseID{l.id}, l.seconds, l.sent, p
	}
	s.claims.mu.Unlock()
	switch {
	case err != nil:
		return driver.Renewed{Err: err}
	case releasing:
		s.owe(debt{leases: []clientv3.LeaseID{l.id}, used: true}, r.TTL)
		return driver.Renewed{Err: driver.ErrNotHeld}
	}
	s.giveUpLeases(cl, before)
	return driver.Renewed{Deadline: l.deadline(r.TTL), Contended: contended}
}

// touch checks that the owner has its place, and writes p to it if write is set. uncertain reports
// that an earlier attempt may have written it.
func (s *session) touch(ctx context.Context, cl *claim, on etcdLease, p place, write bool) (contended, uncertain bool, err error) {
	then := []clientv3.Op{cl.names.newest()}
	ifs := []clientv3.Cmp{cl.names.isOld(cl.create)}
	if write {
		then = append(cl.names.writeFirst(p, on), then...)
	}
	r, uncertain, err := s.commitUncertain(ctx, ifs, then, nil)
	if write && uncertain {
		s.claims.mu.Lock()
		cl.uncertain = true
		s.claims.mu.Unlock()
	}
	switch {
	case err != nil:
		return false, uncertain, err
	case !r.Succeeded:
		return false, uncertain, driver.ErrNotHeld
	}
	cl.readAt.Store(r.Header.Revision)
	contended, err = othersWait(r.Responses[len(r.Responses)-1].GetResponseRange(), cl.names.place)
	return contended, uncertain, err
}

// keepAlives are the renewals of a session's etcd leases. They share a stream, which stays open from
// one to the next: with authentication etcd checks a password for each new one. It is opened for the
// first renewal, and closed when none has come for keepOpen. The zero value is ready for use.
type keepAlives struct {
	mu      sync.Mutex
	streams []*keepStream // those that take renewals
}

const (
	// keepOpen is how long a stream without renewals stays open.
	keepOpen = 30 * time.Second

	// crowded is how many renewals may wait for their answers on each stream before another is
	// opened, since etcd answers those of one stream one after the other.
	crowded = 64

	// maxStreams bounds the streams that take renewals.
	maxStreams = 8
)

// keepStream is one stream. Its fields are guarded by keepAlives.mu.
type keepStream struct {
	of     *keepAlives
	ctx    context.Context // ends with the stream
	cancel context.CancelFunc
	wake   kit.Signal

	unsent []*keepAlive
	sent   map[clientv3.LeaseID][]*keepAlive // oldest first; those that nobody waits for any more, too
	wanted int                               // how many callers wait for an answer
	closed bool                              // takes no more renewals
}

// keepAlive is one renewal on one stream.
type keepAlive struct {
	id       clientv3.LeaseID
	sentAt   time.Time
	answered chan<- keptAlive // has room
}

// keptAlive is the outcome of a keepAlive.
type keptAlive struct {
	lease etcdLease
	err   error
}

// renew renews an etcd lease once. If half of the time that ctx leaves has passed, the stream is given
// up, and the same is asked on another. Either may answer.
func (k *keepAlives) renew(ctx context.Context, s *session, id clientv3.LeaseID) (etcdLease, error) {
	answers := make(chan keptAlive, 2)
	first, err := k.ask(s, id, answers)
	if err != nil {
		return etcdLease{}, err
	}
	defer k.leave(first)
	half := s.timeout / 2
	if end, ends := ctx.Deadline(); ends {
		half = time.Until(end) / 2
	}
	silent := time.NewTimer(half)
	defer silent.Stop()
	for asked := 1; ; {
		select {
		case a := <-answers:
			if asked--; a.err == nil || leaseNotFound(a.err) || asked == 0 {
				return a.lease, a.err
			}
		case <-silent.C:
			k.retire(first)
			second, err := k.ask(s, id, answers)
			if err != nil {
				return etcdLease{}, err
			}
			asked++
			defer k.leave(second)
		case <-ctx.Done():
			return etcdLease{}, contextError(ctx)
		}
	}
}

// ask has a renewal sent. A caller that no longer waits for the answer calls leave.
func (k *keepAlives) ask(s *session, id clientv3.LeaseID, answers chan<- keptAlive) (*keepStream, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var st *keepStream
	for _, other := range k.streams {
		if st == nil || other.wanted < st.wanted {
			st = other
		}
	}
	if st == nil || st.wanted >= crowded && len(k.streams) < maxStreams {
		st = &keepStream{of: k, wake: kit.NewSignal(), sent: make(map[clientv3.LeaseID][]*keepAlive)}
		st.ctx, st.cancel = context.WithCancel(clientv3.WithRequireLeader(s.Ctx))
		if !s.Start(func() { st.run(s) }) {
			st.cancel()
			return nil, driver.ErrClosed
		}
		k.streams = append(k.streams, st)
	}
	st.unsent = append(st.unsent, &keepAlive{id: id, answered: answers})
	st.wanted++
	st.wake.Set()
	return st, nil
}

// leave notes that a caller no longer waits for an answer.
func (k *keepAlives) leave(st *keepStream) {
	k.mu.Lock()
	defer k.mu.Unlock()
	st.wanted--
	if st.closed && st.wanted == 0 {
		st.cancel()
	}
}

// retire has a stream take no more renewals. It stays open for those that wait.
func (k *keepAlives) retire(st *keepStream) {
	k.mu.Lock()
	defer k.mu.Unlock()
	st.close()
}

// close has the stream take no more renewals. keepAlives.mu is held.
func (st *keepStream) close() {
	st.closed = true
	st.of.streams = slices.DeleteFunc(st.of.streams, func(other *keepStream) bool { return other == st })
}

// run opens the stream and sends renewals, until the stream ends or is idle.
func (st *keepStream) run(s *session) {
	defer st.cancel()
	stream, err := pb.NewLeaseClient(s.client.ActiveConnection()).LeaseKeepAlive(st.ctx, grpc.WaitForReady(true))
	if err != nil {
		st.end(err)
		return
	}
	if !s.Start(func() { st.receive(stream) }) {
		st.end(driver.ErrClosed)
		return
	}
	idle := time.NewTimer(keepOpen)
	defer idle.Stop()
	for {
		for ka := st.next(); ka != nil; ka = st.next() {
			if stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(ka.id)}) != nil {
				<-st.ctx.Done() // receive is told why, and ends it
				return
			}
			idle.Reset(keepOpen)
		}
		select {
		case <-st.wake:
		case <-st.ctx.Done():
			return
		case <-idle.C:
			if st.closeIfIdle() {
				return
			}
			idle.Reset(keepOpen)
		}
	}
}

// next returns the next renewal to send, which counts as sent from now on; nil if there is none.
func (st *keepStream) next() *keepAlive {
	st.of.mu.Lock()
	defer st.of.mu.Unlock()
	if len(st.unsent) == 0 {
		return nil
	}
	ka := st.unsent[0]
	st.unsent = st.unsent[1:]
	st.sent[ka.id] = append(st.sent[ka.id], ka)
	ka.sentAt = time.Now()
	return ka
}

// closeIfIdle closes the stream if nobody waits for an answer, and reports whether that is so.
func (st *keepStream) closeIfIdle() bool {
	st.of.mu.Lock()
	defer st.of.mu.Unlock()
	if st.wanted > 0 {
		return false
	}
	st.close()
	return true
}

// receive passes answers on, until the stream ends.
func (st *keepStream) receive(stream pb.Lease_LeaseKeepAliveClient) {
	for {
		r, err := stream.Recv()
		if err != nil {
			st.end(err)
			return
		}
		st.answer(r)
	}
}

// answer passes an answer on to the oldest renewal of the lease, as etcd answers those in order. So
// that is never one which was sent after the one that is answered.
func (st *keepStream) answer(r *pb.LeaseKeepAliveResponse) {
	st.of.mu.Lock()
	defer st.of.mu.Unlock()
	id := clientv3.LeaseID(r.ID)
	asked := st.sent[id]
	if len(asked) == 0 {
		return
	}
	ka := asked[0]
	if st.sent[id] = asked[1:]; len(asked) == 1 {
		delete(st.sent, id)
	}
	if r.TTL <= 0 {
		ka.answered <- keptAlive{err: rpctypes.ErrLeaseNotFound}
		return
	}
	ka.answered <- keptAlive{lease: etcdLease{id: id, seconds: r.TTL, sent: ka.sentAt}}
}

// end tells all who wait why the stream has ended.
func (st *keepStream) end(err error) {
	defer st.cancel()
	if errors.Is(err, io.EOF) {
		err = errors.New("the server has ended the stream of renewals")
	}
	err = clientv3.ContextError(st.ctx, err)
	st.of.mu.Lock()
	defer st.of.mu.Unlock()
	st.close()
	for _, asked := range st.sent {
		st.unsent = append(st.unsent, asked...)
	}
	for _, ka := range st.unsent {
		ka.answered <- keptAlive{err: err}
	}
	st.unsent, st.sent = nil, nil
}
