package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// Inspect reports the state of a key.
func (s *session) Inspect(ctx context.Context, key string) (driver.State, error) {
	if err := s.Enter(); err != nil {
		return driver.State{}, err
	}
	defer s.Leave()
	st, _, err := runAttempt(ctx, s, s.Closing, func(ctx context.Context, _ *attempt) (driver.State, error) {
		return s.inspect(ctx, key)
	})
	return st, err
}

func (s *session) inspect(ctx context.Context, key string) (st driver.State, err error) {
	err = s.tables.run(func(q *queries) error {
		st, err = s.inspectBy(ctx, q, key)
		return err
	})
	return st, err
}

// inspectBy is inspect by those queries.
func (s *session) inspectBy(ctx context.Context, q *queries, key string) (st driver.State, err error) {
	err = s.query(ctx, func(rows *sql.Rows) error {
		var now, last int64
		var state, room, token, grantedAt, expires sql.NullInt64
		var from []byte
		if err := rows.Scan(&now, &last, &state, &room, &token, &grantedAt, &expires, &from); err != nil {
			return err
		}
		st.Token = max(st.Token, last, token.Int64)
		switch {
		case expires.Int64 <= now: // only its token counts, if there is one: the key's row may not have it
			return nil
		case claimState(state.Int64) == waits:
			st.Waiting++
			return nil
		}
		h := driver.Holder{
			Token: token.Int64, Since: time.UnixMicro(grantedAt.Int64),
			Remaining: micros(expires.Int64 - now), Kept: claimState(state.Int64) == kept,
		}
		h.Mode, h.Limit = mode(int32(room.Int64))
		if !h.Kept {
			h.Origin = originOf(from)
		}
		if !st.Held || h.Remaining < st.Remaining {
			st.Remaining = h.Remaining
		}
		st.Held = true
		st.Holders = append(st.Holders, h)
		return nil
	}, q.inspect, []byte(key), []byte(key))
	return st, err
}

// maxToken is the largest token that the contract allows.
const maxToken = 1<<53 - 1

// Oust ends all leases of a key whose token is at most upTo, whoever has them.
func (s *session) Oust(ctx context.Context, key string, upTo int64) error {
	if err := s.Enter(); err != nil {
		return err
	}
	defer s.Leave()
	if upTo >= maxToken {
		return &driver.PermanentError{Err: fmt.Errorf("sql: oust up to token %d, after which there is none; use one that was granted", upTo)}
	}
	_, _, err := runAttempt(ctx, s, s.Closing, func(ctx context.Context, a *attempt) (struct{}, error) {
		return struct{}{}, s.decide(ctx, a, key, func(d *decision) error { return d.oust(upTo) })
	})
	return err
}

// oust ends leases up to a token, and makes later tokens larger than it.
func (d *decision) oust(upTo int64) error {
	for i := 0; i < len(d.claims); {
		c := d.claims[i]
		if c.state == waits || c.token > upTo {
			i++
			continue
		}
		d.ousted = max(d.ousted, c.token)
		d.rowChanged = true
		d.notify(&c, notifyLost)
		d.dropClaim(c.owner)
		if err := d.exec(d.q.deleteClaim, []byte(d.key), c.owner[:]); err != nil {
			return err
		}
	}
	if upTo > d.token {
		d.token, d.rowChanged = upTo, true
	}
	return nil
}

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
