package etcdlock

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var _ driver.Prompt = (*session)(nil)

// budget is how long Begin and End wait for etcd.
const budget = driver.Promptness * 4 / 5

// Begin asks for the key once, on a spare etcd lease, if nobody has been seen to wait for the key
// and etcd has answered quickly of late. It takes no place in the queue but that of a holder.
func (s *session) Begin(r driver.Request, now time.Time) (g driver.Grant, done bool, err error) {
	if !s.pace.quick(now) || check(&r) != nil || s.Enter() != nil {
		return g, false, nil
	}
	defer s.Leave()
	if cl, ended := s.claims.find(r.ID); cl != nil || ended != 0 || s.refusals.recently(r.Key, now) || now.Before(s.hidden.until(r.Key)) {
		return g, false, nil
	}
	l, ok := s.spares.take(seconds(r.TTL), r.Key, now)
	if !ok {
		return g, false, nil
	}
	req := &request{s: s, Request: r, names: namesOf(r.ID)}
	req.putOn(l)
	req.refreshed = nothingToAwait
	ctx, cancel := context.WithTimeout(s.Open, budget)
	defer cancel()
	g, err = req.begin(ctx)
	switch {
	case err != errGoOn:
		req.cleanUp(err)
		return g, true, err
	case !req.uncertain || !s.begun.add(req): // otherwise the place may be there, or come
		req.giveBack()
	}
	return driver.Grant{}, false, nil
}

// errGoOn says that Acquire has to go on.
var errGoOn = errors.New("etcd: the request is not settled yet")

func (req *request) begin(ctx context.Context) (driver.Grant, error) {
	if req.staleLease() {
		return driver.Grant{}, errGoOn
	}
	r, err := req.takeIfFree(ctx, req.names.read())
	switch {
	case leaseNotFound(err):
		req.leased = false // etcd had ended it
		return driver.Grant{}, errGoOn
	case err != nil:
		return driver.Grant{}, errGoOn
	case r.Succeeded:
		req.notePlace()
		return req.grant(ctx, r.Header.Revision, r.Header.Revision, false)
	case req.Wait:
		req.s.refusals.addWait(req.Key, time.Now())
		return driver.Grant{}, errGoOn
	}
	q, err := queueOf(r)
	if err != nil {
		return driver.Grant{}, err
	}
	if own, _ := q.find(req.names.place); own != nil || admits(req.newPlace(waiting), q.entries) {
		return driver.Grant{}, errGoOn
	}
	return driver.Grant{}, req.refuse(&q)
}

// End releases a lease of this session.
func (s *session) End(e driver.Ending, now time.Time) (done bool, err error) {
	if e.Keep > 0 || !s.pace.quick(now) || s.Enter() != nil {
		return false, nil
	}
	defer s.Leave()
	if s.claims.get(e.ID) == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(s.Open, budget)
	defer cancel()
	err = s.release(ctx, e)
	return err == nil || errors.Is(err, driver.ErrNotHeld), err
}
