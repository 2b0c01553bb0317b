package drivertest_test

import (
	"context"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var _ driver.Lister = (*session)(nil)

func (s *session) List(ctx context.Context, prefix, after string, limit int) (driver.Page, error) {
	if err := s.enter(); err != nil {
		return driver.Page{}, err
	}
	defer s.leave()
	ctx, stop := s.bounded(ctx)
	defer stop()
	page, _, err := send(ctx, s, opNone, func() driver.Page { return s.d.store.list(prefix, after, limit) })
	return page, err
}

// list names keys that are taken, in order.
func (s *store) list(prefix, after string, limit int) (page driver.Page) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.DeleteFunc(slices.Sorted(maps.Keys(s.keys)), func(key string) bool {
		return len(s.keys[key].live(time.Now())) == 0 || !s.begins(key, prefix)
	})
	if s.fault == listGoesByNumber {
		n, _ := strconv.Atoi(after)
		all = all[min(n, len(all)):]
		page.Next = strconv.Itoa(n + limit)
	} else if i, there := slices.BinarySearch(all, after); there {
		all = all[i+1:]
	} else {
		all = all[i:]
	}
	if len(all) <= limit {
		return driver.Page{Keys: all}
	}
	page.Keys = all[:limit]
	switch s.fault {
	case listEndsAtItsLimit:
		page.Next = ""
	case listGoesByNumber:
	default:
		page.Next = all[limit-1]
	}
	return page
}

// begins reports whether a key is one of a prefix.
func (s *store) begins(key, prefix string) bool {
	switch s.fault {
	case listIgnoresThePrefix:
		return true
	case listTakesThePrefixApart:
		like, err := path.Match(prefix, key[:min(len(key), len(prefix))])
		return like && err == nil
	}
	return strings.HasPrefix(key, prefix)
}
