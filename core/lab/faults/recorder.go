package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/lab/faults/history"
)

// recorder is a driver that writes down what is asked of another one, and leaves it as it
// is.
type recorder struct {
	driver.Driver
	process int
	log     *history.Log
}

func (r *recorder) Open(c driver.Config) (driver.Session, error) {
	s, err := r.Driver.Open(c)
	if err != nil {
		return nil, err
	}
	session := &recorded{s, r}
	if p, ok := s.(driver.Prompt); ok {
		return &promptRecorded{session, p}, nil
	}
	return session, nil
}

type recorded struct {
	driver.Session
	to *recorder
}

func (s *recorded) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	call := history.Now()
	g, err := s.Session.Acquire(ctx, r)
	s.granted(r, g, call, err)
	return g, err
}

func (s *recorded) granted(r driver.Request, g driver.Grant, call int64, err error) {
	if err != nil {
		return
	}
	if r.Replace != nil {
		s.add(history.End, r.Replace.ID, history.Event{Token: r.Replace.Token, Call: call})
	}
	s.add(history.Grant, g.ID, history.Event{Token: g.Token, TTL: int64(r.TTL), Call: call, Deadline: history.At(g.Deadline)})
}

func (s *recorded) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	call := history.Now()
	out := s.Session.Renew(ctx, rs)
	for i, r := range rs {
		e := history.Event{Token: r.Token, TTL: int64(r.TTL), Call: call, Error: said(out[i].Err)}
		if out[i].Err == nil {
			e.Deadline = history.At(out[i].Deadline)
		}
		s.add(history.Renew, r.ID, e)
	}
	return out
}

func (s *recorded) Release(ctx context.Context, rs []driver.Ending) []error {
	call := history.Now()
	out := s.Session.Release(ctx, rs)
	for i, r := range rs {
		s.add(history.End, r.ID, history.Event{Token: r.Token, Call: call, Error: said(out[i])})
	}
	return out
}

func (s *recorded) add(op history.Op, id driver.ID, e history.Event) {
	sum := sha256.Sum256(id.Owner[:])
	e.Process, e.Op, e.Key, e.Owner, e.Return = s.to.process, op, bare(id.Key), hex.EncodeToString(sum[:6]), history.Now()
	s.to.log.Add(e)
}

// promptRecorded is the same for a session that has the fast way too.
type promptRecorded struct {
	*recorded
	prompt driver.Prompt
}

func (s *promptRecorded) Begin(r driver.Request, now time.Time) (driver.Grant, bool, error) {
	call := history.Now()
	g, done, err := s.prompt.Begin(r, now)
	if done {
		s.granted(r, g, call, err)
	}
	return g, done, err
}

func (s *promptRecorded) End(e driver.Ending, now time.Time) (bool, error) {
	call := history.Now()
	done, err := s.prompt.End(e, now)
	if done {
		s.add(history.End, e.ID, history.Event{Token: e.Token, Call: call, Error: said(err)})
	}
	return done, err
}

// said is a driver's error as the history has it.
func said(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, driver.ErrNotHeld):
		return history.NotHeld
	}
	return err.Error()
}
