package etcdlock

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
)

// findOfOtherSession finds a lease that another session was granted. Its place may be somebody
// else's now: then the token is another one.
func (s *session) findOfOtherSession(ctx context.Context, id driver.ID, ref string, token int64) (*claim, error) {
	n := namesOf(id)
	read, ok := n.byRef(id, ref)
	if !ok {
		return nil, driver.ErrNotHeld
	}
	r, err := s.commit(ctx, nil, []clientv3.Op{read}, nil)
	if err != nil {
		return nil, err
	}
	kvs := r.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return nil, driver.ErrNotHeld
	}
	e, err := parseEntry(kvs[0])
	if err != nil {
		return nil, err
	}
	if e.stage != holding || e.token != token {
		return nil, driver.ErrNotHeld
	}
	n.place = e.name
	return &claim{
		id: id, names: n, create: e.create, token: e.token, writing: make(chan struct{}, 1),
		leases: []clientv3.LeaseID{e.lease}, place: e.place,
	}, nil
}

// endForeign deletes the place of a lease that another session was granted.
func (s *session) endForeign(ctx context.Context, e *driver.Ending) error {
	cl, err := s.findOfOtherSession(ctx, e.ID, e.Ref, e.Token)
	switch {
	case errors.Is(err, driver.ErrNotHeld):
		return nil
	case err != nil:
		return err
	}
	_, err = s.commit(ctx, nil, []clientv3.Op{cl.names.deleteIfOld(cl.create)}, nil)
	return err
}
