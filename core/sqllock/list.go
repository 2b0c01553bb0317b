package sqllock

import (
	"context"
	"database/sql"
	"strings"

	"github.com/lockaround/lockaround/core/driver"
)

var _ driver.Lister = (*session)(nil)

// List names the keys that have claims, in the order of their bytes.
func (s *session) List(ctx context.Context, prefix, after string, limit int) (driver.Page, error) {
	if err := s.Enter(); err != nil {
		return driver.Page{}, err
	}
	defer s.Leave()
	page, _, err := runAttempt(ctx, s, s.Closing, func(ctx context.Context, _ *attempt) (driver.Page, error) {
		return s.list(ctx, prefix, max(prefix, after), limit)
	})
	return page, err
}

// list reads keys from first on. Those with the prefix are next to each other.
func (s *session) list(ctx context.Context, prefix, first string, limit int) (page driver.Page, err error) {
	n := 0
	err = s.query(ctx, func(rows *sql.Rows) error {
		var key []byte
		if err := rows.Scan(&key); err != nil {
			return err
		}
		if n++; strings.HasPrefix(string(key), prefix) {
			page.Keys = append(page.Keys, string(key))
		}
		return nil
	}, s.tables.queries().list, []byte(first), limit)
	if n == limit && n == len(page.Keys) {
		page.Next = page.Keys[n-1] + "\x00" // the key that would follow at once
	}
	return page, err
}
