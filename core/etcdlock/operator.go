package etcdlock

import (
	"context"
	"net/url"
	"strings"

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
	for i, e := range q.entries {
		if holds(q.entries, i) {
			held = append(held, e)
		} else {
			st.Waiting++
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
			Mode: e.mode, Limit: e.limit, Token: e.create, Since: e.since, Kept: e.stage == kept,
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

var _ driver.Lister = (*session)(nil)

// List names the keys that have places, in the order of their escaped names. It reads names
// alone. A key with more places than limit takes several pages, of which one names it.
func (s *session) List(ctx context.Context, prefix, after string, limit int) (page driver.Page, err error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return page, err
	}
	defer leave()
	all := KeyPrefix + url.PathEscape(prefix)
	r, _, err := retry(ctx, s, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return s.client.Get(ctx, max(all, after), clientv3.WithRange(clientv3.GetPrefixRangeEnd(all)), clientv3.WithKeysOnly(), clientv3.WithLimit(int64(limit)))
	})
	if err != nil {
		return page, err
	}
	last := ""
	for _, kv := range r.Kvs {
		escaped, part, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), KeyPrefix), "/")
		if escaped == last || !strings.HasPrefix(part, queuePart) {
			continue
		}
		last = escaped
		if key, err := url.PathUnescape(escaped); err == nil && key != "" {
			page.Keys = append(page.Keys, key)
		}
	}
	if r.More && len(r.Kvs) > 0 {
		page.Next = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	}
	return page, nil
}

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
		for i, e := range q.entries {
			if holds(q.entries, i) && e.create <= upTo {
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
