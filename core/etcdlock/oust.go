package etcdlock

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Oust ends leases, whoever has them. It reads the queue again until it finds none: a
// renewal may have put a place on another lease meanwhile.
func (s *session) Oust(ctx context.Context, key string, upTo int64) error {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	n := names{queue: roomOf(key) + queuePart}
	for {
		q, err := s.queue(ctx, n)
		if err != nil {
			return err
		}
		var leases []clientv3.LeaseID
		for _, e := range q.entries {
			if e.stage != waiting && e.token <= upTo {
				leases = append(leases, e.lease)
			}
		}
		if len(leases) == 0 {
			return nil
		}
		errs := make([]error, len(leases))
		each(len(leases), func(i int) {
			_, _, errs[i] = reach(ctx, s, func(ctx context.Context) (none, error) { return s.revoke(ctx, leases[i]) })
		})
		for _, err := range errs {
			if err != nil && !absent(err) {
				return err
			}
		}
	}
}
