package memlock

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var _ driver.Lister = (*session)(nil)

// List names the keys that are taken, a shard of the key space at a time.
func (s *session) List(ctx context.Context, prefix, after string, limit int) (driver.Page, error) {
	if err := s.reach(ctx); err != nil {
		return driver.Page{}, err
	}
	var page driver.Page
	first, err := strconv.Atoi(cmp.Or(after, "0"))
	if err != nil || first < 0 {
		return page, &driver.PermanentError{Err: fmt.Errorf("list keys after %q, which no page has returned", after)}
	}
	m := s.d.instantOf(time.Now())
	for i := first; i < shards; i++ {
		if len(page.Keys) >= limit {
			page.Next = strconv.Itoa(i)
			break
		}
		page.Keys = append(page.Keys, s.d.shard[i].named(prefix, m)...)
	}
	return page, nil
}

// named returns the keys that are taken and begin with prefix.
func (sh *shard) named(prefix string, m instant) (keys []string) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for key := range sh.keys {
		if strings.HasPrefix(key, prefix) && sh.find(key, m) != nil {
			keys = append(keys, key)
		}
	}
	return keys
}
