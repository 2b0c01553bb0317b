package etcdlock

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
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
