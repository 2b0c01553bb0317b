package etcdlock

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Oust ends leases, whoever has them. It reads the queue again until it finds none.
func (s *session) Oust(ctx context.Context, key string, upTo int64) error {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	n := names{queue: keyPrefixOf(key) + queuePart}
	for {
		q, err := s.queue(ctx, n)
		if err != nil {
			return err
		}
		var places []entry
		for _, e := range q.entries {
			if e.stage != waiting && e.token <= upTo {
				places = append(places, e)
			}
		}
		if len(places) == 0 {
			return nil
		}
		errs := make([]error, len(places))
		each(len(places), func(i int) {
			n := names{place: places[i].name}
			_, errs[i] = s.commit(ctx, []clientv3.Cmp{n.isOld(places[i].create)}, []clientv3.Op{clientv3.OpDelete(n.place)}, nil)
		})
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
	}
}
