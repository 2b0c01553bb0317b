package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// queue reads a key's queue.
func (s *session) queue(ctx context.Context, n names) (queue, error) {
	r, err := s.commit(ctx, nil, []clientv3.Op{n.read()}, nil)
	if err != nil {
		return queue{}, err
	}
	return queueOf(r)
}

// commit runs a transaction. It may run twice.
func (s *session) commit(ctx context.Context, ifs []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	r, _, err := s.commitUncertain(ctx, ifs, then, otherwise)
	return r, err
}

// commitUncertain is commit, and reports whether it may have run twice, or may still run.
func (s *session) commitUncertain(ctx context.Context, ifs []clientv3.Cmp, then, otherwise []clientv3.Op) (r *clientv3.TxnResponse, uncertain bool, err error) {
	r, uncertain, err = retryBy(ctx, s, inline, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.client.Txn(ctx).If(ifs...).Then(then...).Else(otherwise...).Commit()
	})
	return r, uncertain || err != nil && !leaseNotFound(err), err
}

// commitAlong is commitUncertain for an acquisition, which takes along places that are to be deleted.
func (s *session) commitAlong(ctx context.Context, n names, ifs []clientv3.Cmp, then, otherwise []clientv3.Op) (r *clientv3.TxnResponse, uncertain bool, err error) {
	r, uncertain, err = retryBy(ctx, s, inline, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		defer s.endings.asked()
		along := s.endings.takeAlong(n)
		if len(along) > 0 {
			txn := s.client.Txn(ctx).If(ifs...).Then(append(deletions(along), then...)...).Else(append(deletions(along), otherwise...)...)
			if r, refused, err := s.endings.deleteBy(txn, along, s); !refused {
				return r, err
			}
		}
		r, err := s.client.Txn(ctx).If(ifs...).Then(then...).Else(otherwise...).Commit()
		if err == nil && len(along) > 0 {
			s.endings.goAlone()
		}
		return r, err
	})
	return r, uncertain || err != nil && !leaseNotFound(err), err
}

// newLease asks etcd for a lease. If the answer is lost, the lease has no keys and expires.
func (s *session) newLease(ctx context.Context, ttl time.Duration) (etcdLease, error) {
	l, _, err := retry(ctx, s, func(ctx context.Context) (etcdLease, error) {
		sent := time.Now()
		r, err := s.client.Grant(ctx, seconds(ttl))
		if err != nil {
			return etcdLease{}, err
		}
		return etcdLease{id: r.ID, seconds: r.TTL, sent: sent}, nil
	})
	return l, err
}

// keepAlive renews a lease for as long as it was granted.
func (s *session) keepAlive(ctx context.Context, id clientv3.LeaseID) (etcdLease, error) {
	l, _, err := retryBy(ctx, s, inline, func(ctx context.Context) (etcdLease, error) { return s.keepAlives.renew(ctx, s, id) })
	return l, err
}

// none is the result of calls without one.
type none struct{}

// revoke ends a lease and deletes its keys, in one attempt. The client's own Revoke repeats
// a request whose answer is lost, and then reports that there is no such lease, as if
// somebody else had ended it.
func (s *session) revoke(ctx context.Context, id clientv3.LeaseID) (none, error) {
	_, err := pb.NewLeaseClient(s.client.ActiveConnection()).
		LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: int64(id)}, grpc.WaitForReady(true))
	return none{}, clientv3.ContextError(ctx, err)
}

// The parts of transactions.

// read reads the queue.
func (n names) read() clientv3.Op { return clientv3.OpGet(n.queue, clientv3.WithPrefix()) }

// newest reads the newest place of the queue.
func (n names) newest() clientv3.Op {
	return clientv3.OpGet(n.queue, clientv3.WithLastCreate()...)
}

// count counts the places of the queue.
func (n names) count() clientv3.Op {
	return clientv3.OpGet(n.queue, clientv3.WithPrefix(), clientv3.WithCountOnly())
}

// write writes the owner's place on that lease.
func (n names) write(p place, on clientv3.LeaseID) clientv3.Op {
	return clientv3.OpPut(n.place, p.String(), clientv3.WithLease(on))
}

// writeFirst writes the owner's place, and the lease's alive key unless that exists. A late
// copy of the request must not move an alive key back from the lease that it was moved to.
func (n names) writeFirst(p place, on etcdLease) []clientv3.Op {
	ops := []clientv3.Op{n.write(p, on.id)}
	if !on.used {
		aliveKey := aliveKeyOf(on.id)
		isNew := clientv3.Compare(clientv3.CreateRevision(aliveKey), "=", 0)
		ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{isNew}, []clientv3.Op{clientv3.OpPut(aliveKey, "", clientv3.WithLease(on.id))}, nil))
	}
	return ops
}

// isNew is true if the owner has no place.
func (n names) isNew() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(n.place), "=", 0)
}

// isOld is true if the owner has the place that was created at that revision.
func (n names) isOld(create int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(n.place), "=", create)
}

// deleteIfOld deletes the owner's place if it is the one that was created at that revision.
func (n names) deleteIfOld(create int64) clientv3.Op {
	return clientv3.OpTxn([]clientv3.Cmp{n.isOld(create)}, []clientv3.Op{clientv3.OpDelete(n.place)}, nil)
}

// untouched is true if the owner has that place and has not written to it since.
func (n names) untouched(create int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(n.place), "=", create)
}

// all is true if the comparison holds for the create revision of each place of the queue.
// For an empty queue it is made with 0.
func (n names) all(result string, create int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(n.queue), result, create).WithPrefix()
}

// queueOf returns the queue that a transaction has read with its last operation.
func queueOf(r *clientv3.TxnResponse) (queue, error) {
	responses := r.Responses
	for {
		last := responses[len(responses)-1]
		if t := last.GetResponseTxn(); t != nil {
			responses = t.Responses
			continue
		}
		return parseQueue(last.GetResponseRange().Kvs, r.Header.Revision)
	}
}

// othersWait reports whether anybody but the owner of the place own waits. r is the newest
// place of the queue: if that one does not wait, nobody does.
func othersWait(r *pb.RangeResponse, own string) (bool, error) {
	for _, kv := range r.Kvs {
		e, err := parseEntry(kv)
		if err != nil {
			return false, err
		}
		if e.stage == waiting && e.name != own {
			return true, nil
		}
	}
	return false, nil
}

// retry makes a request and repeats it after retryable errors, until the store time-out or
// the end of ctx. So call may run twice, or late. When ctx ends, retry returns at once, even
// if the client library does not: call then goes on with a context that has ended. uncertain
// reports that an attempt before the last got no answer and may have been executed.
func retry[T any](ctx context.Context, s *session, call func(context.Context) (T, error)) (v T, uncertain bool, err error) {
	return retryBy(ctx, s, attempt, call)
}

// retryBy is retry with another way to make an attempt.
func retryBy[T any](
	ctx context.Context, s *session, attempt func(context.Context, *session, func(context.Context) (T, error)) (T, error), call func(context.Context) (T, error),
) (v T, uncertain bool, err error) {
	tell, _ := ctx.Value(tellKey{}).(func(error))
	tries := kit.Tries{Tell: tell}
	ctx, cancel := atMost(ctx, s.timeout)
	defer cancel()
	if !s.connected() {
		s.Start(func() {
			if err := s.unconnected(ctx); err != nil {
				tries.Failed(err)
			}
		})
	}
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		sent := time.Now()
		v, err = attempt(ctx, s, call)
		now := time.Now()
		s.pace.note(now, now.Sub(sent), retryable(err) || ctx.Err() != nil)
		if !retryable(err) {
			return v, uncertain, err
		}
		if ctx.Err() == nil {
			tries.Failed(err)
		}
		uncertain = true
		if s.client.Ctx().Err() != nil {
			return v, uncertain, &driver.PermanentError{Err: errors.New("etcd: the client is closed")}
		}
		if !kit.Sleep(ctx, pause) {
			return v, uncertain, tries.Ended(contextError(ctx))
		}
	}
}

// tellKey is the key of what a context's requests tell.
type tellKey struct{}

// telling returns a context whose requests tell the sink what their tries come to.
func (s *session) telling(ctx context.Context, id driver.ID) context.Context {
	return context.WithValue(ctx, tellKey{}, func(err error) { driver.Failed(s.sink, id, err) })
}

// connected reports whether there is a connection to etcd.
func (s *session) connected() bool {
	return s.client.ActiveConnection().GetState() == connectivity.Ready
}

// unconnected waits for a connection to etcd, and returns why there is none. The client library says
// that only to a request which does not wait for one.
func (s *session) unconnected(ctx context.Context) error {
	_, err := pb.NewMaintenanceClient(s.client.ActiveConnection()).Status(ctx, &pb.StatusRequest{}, grpc.WaitForReady(false))
	if ctx.Err() != nil || code(err) != codes.Unavailable {
		return nil
	}
	return classify(err)
}

// atMost returns a context that ends with ctx, and after that time at the latest, in silence.
func atMost(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if end, ends := ctx.Deadline(); ends && time.Until(end) <= timeout {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, timeout, silenceError(timeout))
}

// attempt makes one attempt.
func attempt[T any](ctx context.Context, s *session, call func(context.Context) (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	var none T
	if ctx.Err() != nil {
		return none, contextError(ctx)
	}
	answers := make(chan answer, 1)
	s.Start(func() {
		v, err := call(ctx)
		answers <- answer{v, err}
	})
	select {
	case a := <-answers:
		if a.err != nil && ctx.Err() != nil {
			return none, contextError(ctx)
		}
		return a.v, classify(a.err)
	case <-ctx.Done():
	}
	select {
	case a := <-answers: // both were ready
		if a.err == nil {
			return a.v, nil
		}
	default:
	}
	return none, contextError(ctx)
}

// inline makes one attempt on the caller's goroutine. It returns when the client library does,
// which for a transaction is soon after ctx has ended.
func inline[T any](ctx context.Context, _ *session, call func(context.Context) (T, error)) (v T, err error) {
	if ctx.Err() != nil {
		return v, contextError(ctx)
	}
	kit.GrowStack()
	if v, err = call(ctx); err != nil && ctx.Err() != nil {
		return v, contextError(ctx)
	}
	return v, classify(err)
}

const (
	firstPause = 10 * time.Millisecond // before a request is repeated
	maxPause   = 250 * time.Millisecond
)

// silenceError is the error of a request that got no answer in time.
func silenceError(after time.Duration) error { return &kit.SilenceError{Store: "etcd", After: after} }

// errLeaseEnded is the cause of the end of a lease that etcd has ended.
var errLeaseEnded = errors.New("etcd: the lease has expired or was revoked at the server")

// classify wraps an error of the client library. It returns a *driver.PermanentError if a
// retry is useless.
func classify(err error) error {
	if kit.Final(err) {
		return err
	}
	wrapped := fmt.Errorf("etcd: %w", err)
	switch code(err) {
	case codes.PermissionDenied, codes.Unimplemented:
		return &driver.PermanentError{Err: wrapped}
	case codes.InvalidArgument:
		if !errors.Is(rpctypes.Error(err), rpctypes.ErrAuthOldRevision) {
			return &driver.PermanentError{Err: wrapped}
		}
	case codes.OutOfRange:
		if !errors.Is(rpctypes.Error(err), rpctypes.ErrCompacted) {
			return &driver.PermanentError{Err: wrapped}
		}
	case codes.ResourceExhausted, codes.Unauthenticated, codes.FailedPrecondition: // such as no room left
		return &driver.RefusedError{Err: wrapped}
	}
	return wrapped
}

// code returns the gRPC status code of an error.
func code(err error) codes.Code {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code()
	}
	return status.Code(err)
}

// leaseNotFound reports whether etcd does not know the lease.
func leaseNotFound(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }

// retryable reports whether another attempt may get another answer.
func retryable(err error) bool { return !kit.Final(err) && !leaseNotFound(err) }

// contextError returns the reason why a context has ended.
func contextError(ctx context.Context) error {
	cause := context.Cause(ctx)
	var quiet *kit.SilenceError
	if errors.Is(cause, driver.ErrClosed) || errors.As(cause, &quiet) {
		return cause
	}
	return ctx.Err()
}

// isLost reports whether err means that a lease has ended.
func isLost(err error) bool { return leaseNotFound(err) || errors.Is(err, driver.ErrNotHeld) }
