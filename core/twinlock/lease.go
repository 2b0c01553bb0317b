package twinlock

import (
	"context"
	"errors"

	"github.com/lockaround/lockaround/core/driver"
)

// Renew extends leases at both stores.
func (s *session) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	out := make([]driver.Renewed, len(rs))
	if err := s.enter(); err != nil {
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	defer s.running.Done()
	var renewed [sides][]driver.Renewed
	s.both(func(side int, store driver.Session) {
		parts := make([]driver.Renewal, len(rs))
		for i, r := range rs {
			parts[i] = r
			if p, known := s.part(r.Owner, side); known {
				parts[i].Ref, parts[i].Token = p.ref, p.token
			}
		}
		renewed[side] = store.Renew(ctx, parts)
		for i, r := range renewed[side] {
			if r.Err == nil {
				s.extend(rs[i].Owner, side, r)
			}
		}
	})
	for i := range rs {
		a, b := renewed[from][i], renewed[to][i]
		if out[i].Err = worse(a.Err, b.Err); out[i].Err == nil {
			out[i] = driver.Renewed{Deadline: earlier(a.Deadline, b.Deadline), Contended: a.Contended || b.Contended}
		}
	}
	return out
}

// worse is ErrNotHeld if one of the errors is, and else the first that there is.
func worse(a, b error) error {
	if a == nil || errors.Is(b, driver.ErrNotHeld) {
		return b
	}
	return a
}

// extend notes a renewal at one of the stores.
func (s *session) extend(o driver.Owner, side int, r driver.Renewed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.claims[o]; c != nil {
		p := &c.parts[side]
		p.deadline, p.contended = driver.Later(p.deadline, r.Deadline), r.Contended
	}
}

// ending is an ending's part at one of the stores. It is over, with that error, if the
// store has it no more.
func (s *session) ending(e driver.Ending, side int) (part driver.Ending, over bool, err error) {
	p, known := s.part(e.Owner, side)
	if known {
		e.Ref, e.Token, e.Deadline = p.ref, p.token, p.deadline
	}
	if p.lost {
		err = driver.ErrNotHeld
	}
	return e, known && !p.held, err
}

// Release ends leases at both stores. A part whose end was confirmed is not ended again.
func (s *session) Release(ctx context.Context, rs []driver.Ending) []error {
	out := make([]error, len(rs))
	if err := s.enter(); err != nil {
		for i := range out {
			out[i] = err
		}
		return out
	}
	defer s.running.Done()
	var ended [sides][]error
	s.both(func(side int, store driver.Session) {
		ended[side] = make([]error, len(rs))
		var parts []driver.Ending
		var at []int
		for i, e := range rs {
			part, over, err := s.ending(e, side)
			if over {
				ended[side][i] = err
				continue
			}
			parts, at = append(parts, part), append(at, i)
		}
		if len(parts) == 0 {
			return
		}
		for j, err := range store.Release(ctx, parts) {
			ended[side][at[j]] = err
		}
	})
	for i, e := range rs {
		a, b := ended[from][i], ended[to][i]
		for side, err := range [sides]error{a, b} {
			if err == nil || errors.Is(err, driver.ErrNotHeld) {
				s.ended(e.Owner, side)
			}
		}
		// A store that could not be asked is to be asked again, whatever the other said.
		if out[i] = a; a == nil || errors.Is(a, driver.ErrNotHeld) && b != nil {
			out[i] = b
		}
	}
	return out
}
