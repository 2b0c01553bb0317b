package etcdlock

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
)

// Ping reports whether a majority of the cluster answers and permits what locks need.
// It sends a transaction whose condition never holds. etcd checks the permissions of both
// branches all the same. It refuses a client that would be locked out by its own token.
func (s *session) Ping(ctx context.Context) error {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if !s.staysLoggedIn(ctx) {
		return &driver.PermanentError{Err: errors.New("etcd 3.4 refuses a client for ever once its token is over, five minutes after its last use; pass the client to etcdlock.KeepLoggedIn when it is made, or use etcd 3.5 or later")}
	}
	never := clientv3.Compare(clientv3.CreateRevision(KeyPrefix), "=", -1)
	all := clientv3.OpGet(KeyPrefix, clientv3.WithPrefix())
	_, err = s.commit(ctx, []clientv3.Cmp{never}, []clientv3.Op{clientv3.OpPut(KeyPrefix+"ping", ""), all}, nil)
	if p := new(driver.PermanentError); errors.As(err, &p) {
		return &driver.PermanentError{Err: fmt.Errorf("etcd does not permit what locks need, readwrite on the prefix %s: %w", KeyPrefix, p.Err)}
	}
	return err
}
