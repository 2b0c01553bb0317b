package etcdlock

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
)

// Inspect reports the state of a key. The remaining time of a lease is in whole seconds,
// rounded up. The time since when it is held is by its holder's clock.
func (s *session) Inspect(ctx context.Context, key string) (driver.State, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return driver.State{}, err
	}
	defer leave()
	q, err := s.queue(ctx, names{queue: keyPrefixOf(key) + queuePart})
	if err != nil {
		return driver.State{}, err
	}
	var held []entry
	st := driver.State{}
	for _, e := range q.entries {
		if e.stage == waiting {
			st.Waiting++
		} else {
			held = append(held, e)
		}
	}
	left := make([]*clientv3.LeaseTimeToLiveResponse, len(held))
	errs := make([]error, len(held))
	each(len(held), func(i int) {
		left[i], _, errs[i] = retry(ctx, s, func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
			return s.client.TimeToLive(ctx, held[i].lease)
		})
	})
	for i, e := range held {
		if errs[i] != nil && !leaseNotFound(errs[i]) {
			return driver.State{}, errs[i]
		}
		if errs[i] != nil || left[i].TTL < 0 {
			continue // it has ended since
		}
		h := driver.Holder{
			Mode: e.mode, Limit: e.limit, Token: e.token, Since: e.since, Kept: e.stage == kept,
			Remaining: secondsToDuration(min(left[i].TTL+1, left[i].GrantedTTL)),
		}
		if !h.Kept {
			h.Origin = originOf(e.name)
		}
		if !st.Held || h.Remaining < st.Remaining {
			st.Remaining = h.Remaining
		}
		st.Held, st.Token = true, max(st.Token, h.Token)
		st.Holders = append(st.Holders, h)
	}
	return st, nil
}
