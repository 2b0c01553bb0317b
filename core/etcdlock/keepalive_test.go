package etcdlock

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/lockaround/lockaround/core/driver"
)

// leaseServer is an etcd that renews leases as a test says.
type leaseServer struct {
	pb.UnimplementedLeaseServer
	opened  chan *leaseStream
	streams sync.WaitGroup
}

// leaseStream is one stream of renewals at the server.
type leaseStream struct {
	pb.Lease_LeaseKeepAliveServer
	asked chan int64 // closed at the end of the stream
	fail  chan error
}

func (l *leaseServer) LeaseKeepAlive(s pb.Lease_LeaseKeepAliveServer) error {
	st := &leaseStream{s, make(chan int64, 1000), make(chan error, 1)}
	l.opened <- st
	l.streams.Go(func() {
		defer close(st.asked)
		for {
			r, err := s.Recv()
			if err != nil {
				return
			}
			st.asked <- r.ID
		}
	})
	select {
	case err := <-st.fail:
		return err
	case <-s.Context().Done():
		return s.Context().Err()
	}
}

func (st *leaseStream) answer(t *testing.T, id, ttl int64) {
	t.Helper()
	if err := st.Send(&pb.LeaseKeepAliveResponse{ID: id, TTL: ttl}); err != nil {
		t.Errorf("answer: %v", err)
	}
}

// withLeases calls f in a synctest bubble with a session whose etcd renews leases as f says.
func withLeases(t *testing.T, f func(t *testing.T, s *session, server *leaseServer)) {
	synctest.Test(t, func(t *testing.T) {
		l := bufconn.Listen(1 << 16)
		fake, server := &leaseServer{opened: make(chan *leaseStream, 100)}, grpc.NewServer()
		pb.RegisterLeaseServer(server, fake)
		var serving sync.WaitGroup
		serving.Go(func() { _ = server.Serve(l) })
		defer func() { server.Stop(); serving.Wait(); fake.streams.Wait() }()
		c, err := clientv3.New(clientv3.Config{
			Endpoints: []string{"passthrough"}, Logger: zap.NewNop(),
			DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) })},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // its streams have ended
		opened, err := New(c).Open(driver.Config{Sink: noSink{}, StoreTimeout: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		s := opened.(*session)
		f(t, s, fake)
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

type noSink struct{ driver.Sink }

// renewal is a running keepAlive.
type renewal struct {
	lease etcdLease
	err   error
}

func (s *session) renewing(ctx context.Context, id clientv3.LeaseID) <-chan renewal {
	done := make(chan renewal, 1)
	go func() {
		l, err := s.keepAlive(ctx, id)
		done <- renewal{l, err}
	}()
	synctest.Wait()
	return done
}

func TestRenewalsShareOneStreamAndEachHasItsOwnAnswer(t *testing.T) {
	withLeases(t, func(t *testing.T, s *session, server *leaseServer) {
		began := time.Now()
		a, b := s.renewing(t.Context(), 1), s.renewing(t.Context(), 2)
		time.Sleep(time.Second)
		second := s.renewing(t.Context(), 1)
		st := <-server.opened
		st.answer(t, 2, 20)
		st.answer(t, 1, 10)
		st.answer(t, 1, 11)
		st.answer(t, 9, 90) // nobody has asked for it
		synctest.Wait()
		for _, tt := range []struct {
			got     <-chan renewal
			seconds int64
			sent    time.Time
		}{{a, 10, began}, {b, 20, began}, {second, 11, began.Add(time.Second)}} {
			if r := <-tt.got; r.err != nil || r.lease.seconds != tt.seconds || !r.lease.sent.Equal(tt.sent) {
				t.Errorf("renewed for %ds from %v, %v, want %ds from %v", r.lease.seconds, r.lease.sent, r.err, tt.seconds, tt.sent)
			}
		}
		gone := s.renewing(t.Context(), 3)
		st.answer(t, 3, 0)
		if r := <-gone; !leaseNotFound(r.err) {
			t.Errorf("the renewal of a lease that etcd does not know returned %v", r.err)
		}
		if len(server.opened) != 0 {
			t.Error("there is a second stream")
		}
	})
}

// The deadline of a lease may not count from a renewal that was sent after the one etcd answered.
func TestLateAnswerIsNotTakenForThatOfALaterRenewal(t *testing.T) {
	withLeases(t, func(t *testing.T, s *session, server *leaseServer) {
		ctx, giveUp := context.WithCancel(t.Context())
		first := s.renewing(ctx, 1)
		giveUp()
		if r := <-first; !errors.Is(r.err, context.Canceled) {
			t.Errorf("a renewal that was given up returned %v", r.err)
		}
		time.Sleep(time.Second)
		second := s.renewing(t.Context(), 1)
		st := <-server.opened
		st.answer(t, 1, 10)
		synctest.Wait()
		select {
		case r := <-second:
			t.Errorf("the answer to the first renewal was taken for that to the second: %+v, %v", r.lease, r.err)
		default:
			st.answer(t, 1, 10)
			if r := <-second; r.err != nil {
				t.Error(r.err)
			}
		}
	})
}

func TestSilentStreamOfRenewalsIsReplacedWithinAnAttempt(t *testing.T) {
	withLeases(t, func(t *testing.T, s *session, server *leaseServer) {
		began := time.Now()
		a := s.renewing(t.Context(), 1)
		silent := <-server.opened
		<-silent.asked
		next := <-server.opened
		<-next.asked
		resent := time.Now()
		if took := resent.Sub(began); took > s.timeout/2 {
			t.Errorf("it was replaced after %v", took)
		}
		b := s.renewing(t.Context(), 2)
		next.answer(t, 1, 10)
		next.answer(t, 2, 10)
		for _, done := range []<-chan renewal{a, b} {
			if r := <-done; r.err != nil || !r.lease.sent.Equal(resent) {
				t.Errorf("renewed from %v, %v, want %v", r.lease.sent, r.err, resent)
			}
		}
		if _, open := <-silent.asked; open {
			t.Error("another renewal came by the silent stream")
		}
	})
}

func TestRenewalWhoseStreamFailsIsRepeatedOnAnother(t *testing.T) {
	withLeases(t, func(t *testing.T, s *session, server *leaseServer) {
		done := s.renewing(t.Context(), 1)
		(<-server.opened).fail <- errors.New("no leader")
		next := <-server.opened
		<-next.asked
		next.answer(t, 1, 10)
		if r := <-done; r.err != nil {
			t.Error(r.err)
		}
	})
}

func TestIdleStreamOfRenewalsEnds(t *testing.T) {
	withLeases(t, func(t *testing.T, s *session, server *leaseServer) {
		var st *leaseStream
		for range 3 {
			time.Sleep(keepOpen - time.Second)
			done := s.renewing(t.Context(), 1)
			if st == nil {
				st = <-server.opened
			}
			<-st.asked
			st.answer(t, 1, 10)
			if r := <-done; r.err != nil {
				t.Fatal(r.err)
			}
		}
		idle := time.Now()
		if _, open := <-st.asked; open {
			t.Error("nobody has asked")
		}
		if took := time.Since(idle); took > keepOpen {
			t.Errorf("it ended after %v", took)
		}
		done := s.renewing(t.Context(), 1)
		next := <-server.opened
		next.answer(t, 1, 10)
		if r := <-done; r.err != nil {
			t.Error(r.err)
		}
	})
}

func TestCrowdOfRenewalsHasAFewStreams(t *testing.T) {
	withLeases(t, func(t *testing.T, s *session, server *leaseServer) {
		var all []<-chan renewal
		for id := range clientv3.LeaseID(2 * maxStreams * crowded) {
			all = append(all, s.renewing(t.Context(), id+1))
		}
		if n := len(server.opened); n != maxStreams {
			t.Errorf("%d renewals have %d streams", len(all), n)
		}
		close(server.opened)
		for st := range server.opened {
			for len(st.asked) > 0 {
				st.answer(t, <-st.asked, 10)
				synctest.Wait()
			}
		}
		for _, done := range all {
			if r := <-done; r.err != nil {
				t.Fatal(r.err)
			}
		}
	})
}
