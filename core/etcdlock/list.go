package etcdlock

import (
	"context"
	"net/url"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
)

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
