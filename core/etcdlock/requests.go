package etcdlock

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/lockaround/lockaround/core/driver"
)

// term is a lease of etcd, as it was granted or renewed.
type term struct {
	id      clientv3.LeaseID
	seconds int64     // from sent on, at least
	sent    time.Time // before the request that the server has answered
	used    bool      // a place was written on it, and what shows that it lives
}

// deadline is when a holder who asked for ttl must consider the lease over.
func (t term) deadline(ttl time.Duration) time.Time {
	return driver.Deadline(t.sent, min(ttl, inSeconds(t.seconds)))
}

// inSeconds is a duration of whole seconds, the longest there is if it has no room.
func inSeconds(n int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Second)
	return time.Duration(min(n, most)) * time.Second
}

// seconds is ttl in whole seconds, rounded up.
func seconds(ttl time.Duration) int64 {
	n := int64(ttl / time.Second)
	if ttl%time.Second > 0 {
		n++
	}
	return n
}

// newTerm asks for a lease. One whose answer is lost has no keys and ends by itself.
func (s *session) newTerm(ctx context.Context, ttl time.Duration) (term, error) {
	t, _, err := reach(ctx, s, func(ctx context.Context) (term, error) {
		sent := time.Now()
		r, err := s.d.client.Grant(ctx, seconds(ttl))
		if err != nil {
			return term{}, err
		}
		return term{id: r.ID, seconds: r.TTL, sent: sent}, nil
	})
	return t, err
}

// keepAlive lets a lease last as long as it was granted for, from now on.
func (s *session) keepAlive(ctx context.Context, id clientv3.LeaseID) (term, error) {
	t, _, err := reach(ctx, s, func(ctx context.Context) (term, error) {
		sent := time.Now()
		r, err := s.d.client.KeepAliveOnce(ctx, id)
		if err != nil {
			return term{}, err
		}
		return term{id: id, seconds: r.TTL, sent: sent}, nil
	})
	return t, err
}

// none is the result of what has none.
type none struct{}

// revoke ends a lease, with all that is on it, in one attempt. The client's own Revoke
// makes another by itself when an answer is lost, and then says that there is no such
// lease, as if somebody else had ended it.
func (s *session) revoke(ctx context.Context, id clientv3.LeaseID) (none, error) {
	_, err := pb.NewLeaseClient(s.d.client.ActiveConnection()).
		LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: int64(id)}, grpc.WaitForReady(true))
	return none{}, clientv3.ContextError(ctx, err)
}

// commit runs a transaction that bears being run twice.
func (s *session) commit(ctx context.Context, ifs []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	r, _, err := s.commitWithDoubt(ctx, ifs, then, otherwise)
	return r, err
}

// commitWithDoubt is commit, and says whether it may have run more than once, or may run yet.
func (s *session) commitWithDoubt(ctx context.Context, ifs []clientv3.Cmp, then, otherwise []clientv3.Op) (r *clientv3.TxnResponse, doubt bool, err error) {
	r, doubt, err = reach(ctx, s, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.d.client.Txn(ctx).If(ifs...).Then(then...).Else(otherwise...).Commit()
	})
	return r, doubt || err != nil && !absent(err), err
}

// The parts of transactions.

func (n names) read() clientv3.Op { return clientv3.OpGet(n.queue, clientv3.WithPrefix()) }

// newest reads the last place of the queue.
func (n names) newest() clientv3.Op {
	return clientv3.OpGet(n.queue, clientv3.WithLastCreate()...)
}

func (n names) write(p place, on clientv3.LeaseID) clientv3.Op {
	return clientv3.OpPut(n.place, p.String(), clientv3.WithLease(on))
}

// writeFirst is write, and with it what shows that the lease lives, if that is not there yet:
// a late copy must not take it from the lease on which it outlasts this one.
func (n names) writeFirst(p place, on term) []clientv3.Op {
	ops := []clientv3.Op{n.write(p, on.id)}
	if !on.used {
		life := lifeOf(on.id)
		isNew := clientv3.Compare(clientv3.CreateRevision(life), "=", 0)
		ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{isNew}, []clientv3.Op{clientv3.OpPut(life, "", clientv3.WithLease(on.id))}, nil))
	}
	return ops
}

// isNew is true if the owner has no place.
func (n names) isNew() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(n.place), "=", 0)
}

// isOld is true if the owner has the place that was created then.
func (n names) isOld(create int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(n.place), "=", create)
}

// untouched is true if the owner has a place and has not written to it since.
func (n names) untouched(create int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(n.place), "=", create)
}

// all is true if each place of the queue was created at such a revision. Of an empty
// queue it is true if 0 is such a revision.
func (n names) all(result string, create int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(n.queue), result, create).WithPrefix()
}

// queueOf returns the queue that the last operation of a transaction has read.
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

// othersWait reports whether the newest place of a queue, which a transaction has
// read, is of one who waits. If it is of one who holds, or could, nobody waits.
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
