package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// Driver keeps locks in one etcd cluster. It is immutable and safe for concurrent
// use, and implements [driver.Driver].
type Driver struct {
	client *clientv3.Client
	grants *grants
}

// New returns a driver for the locks in the cluster that the client talks to. It does
// no I/O, and the client stays the caller's: closing a session does not close it.
func New(client *clientv3.Client) *Driver {
	return &Driver{client: client, grants: newGrants()}
}

// wake is the longest time between two polls of a waiter whose watch reports nothing.
const wake = time.Second

// Capabilities says what an etcd cluster offers.
func (d *Driver) Capabilities() driver.Capabilities {
	var where string
	if d.client != nil {
		where = strings.Join(d.client.Endpoints(), ", ")
	}
	return driver.Capabilities{
		Name:    "etcd",
		Address: where,
		Modes:   []driver.Mode{driver.Exclusive, driver.Shared, driver.Semaphore},
		MinTTL:  minTTL,
		Tokens:  driver.DurableTokens,
		Strict:  true,
		Bounds:  true,
		Keep:    true,
		Oust:    true,
		Recall:  true,
		Wake:    wake,

		Identity: true,
		Trace:    true,
	}
}

// Open starts a session.
func (d *Driver) Open(c driver.Config) (driver.Session, error) {
	switch {
	case d.client == nil:
		return nil, errors.New("open an etcd lock session: the client is nil; pass one made by clientv3.New")
	case c.Sink == nil:
		return nil, errors.New("open an etcd lock session: Config.Sink is nil")
	case c.StoreTimeout <= 0:
		return nil, fmt.Errorf("open an etcd lock session: Config.StoreTimeout is %v; it must be positive", c.StoreTimeout)
	}
	return newSession(d, c), nil
}

func newSession(d *Driver, c driver.Config) *session {
	s := &session{client: d.client, sink: c.Sink, timeout: c.StoreTimeout, identity: c.Identity, Life: kit.NewLife("etcd", "the server")}
	s.claims.init(d.grants)
	s.debts = kit.NewDebts[*debt](s.Life, cleaners)
	return s
}

// Close ends the session. Leases that were granted stay until they expire.
func (s *session) Close(ctx context.Context) error {
	return s.Life.Close(ctx, func(ctx context.Context) bool {
		s.claims.close()
		for _, req := range s.begun.close() {
			s.claims.end(req.ID, notHeld)
			req.giveBack()
		}
		s.revokeSpares()
		return s.debts.Drain(ctx)
	}, nil)
}

// session is one engine's use of the cluster.
type session struct {
	client   *clientv3.Client
	sink     driver.Sink
	timeout  time.Duration // of one request with its retries
	identity string

	claims   claims
	refusals refusals
	spares   spares
	hidden   hiddenHolders
	endings  endings
	pace     pace
	begun    begun

	keepAlives keepAlives

	mu            sync.Mutex
	aliveKeyLease etcdLease // of leaseForAliveKeys

	*kit.Life
	debts *kit.Debts[*debt]
}

// debt is what was given up and must be cleaned up at etcd: a place, and etcd leases with
// all keys on them. Revoking a lease also defeats a late request that would still put a key
// on it.
type debt struct {
	leases    []clientv3.LeaseID
	spare     etcdLease // to be reused when the place is gone; its id is 0 if there is none
	place     string    // to delete; "" is none
	used      bool      // places were on the leases: their alive keys must outlast them
	contended string    // a key to write, on one of the leases, before it is revoked; "" is none
	due       time.Time // the key is kept until then; zero: clean up at once
	done      func()    // called at the end; may be nil

	foreign *driver.Ending // a lease of another session, to be found and deleted; nil is none
}

// enter begins a call of one of the session's methods; leave ends it. The returned context
// also ends when the session is closed.
func (s *session) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	if err := s.Enter(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.Open, func() { cancel(driver.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		s.Leave()
	}, nil
}

// maxParallel bounds the concurrent requests of one call.
const maxParallel = 64

// each calls do for 0 to n-1 concurrently, and waits for all.
func each(n int, do func(int)) {
	if n == 1 {
		do(0)
		return
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, maxParallel)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			do(i)
		})
	}
	all.Wait()
}

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

// KeepLoggedIn has a client with a Username log in to etcd 3.4 again when its token is over, as
// it does by itself to later versions. Call it before the client is used, and before New.
//
// A token is over five minutes after its last use, unless --auth-token-ttl says otherwise. The
// client sends it with what is to get it another one, etcd 3.4 refuses that for the token, and the
// client tries again for ever.
func KeepLoggedIn(client *clientv3.Client) {
	if _, ok := client.Auth.(login); !ok {
		client.Auth = login{client.Auth}
	}
}

// login is what a client logs in by.
type login struct{ clientv3.Auth }

// loggingIn is the key of the context of a login.
type loggingIn struct{}

// Authenticate logs in. If the client calls it from inside of itself, the server has refused the
// token that went with the login. It says then that there are no users, which has the client drop
// its token, and log in without one.
func (l login) Authenticate(ctx context.Context, name, password string) (*clientv3.AuthenticateResponse, error) {
	if ctx.Value(loggingIn{}) != nil {
		return nil, rpctypes.ErrAuthNotEnabled
	}
	return l.Auth.Authenticate(context.WithValue(ctx, loggingIn{}, true), name, password)
}

// staysLoggedIn reports whether the client logs in again when its token is over. A server that does
// not say its version is none of those to which it does not.
func (s *session) staysLoggedIn(ctx context.Context) bool {
	if _, kept := s.client.Auth.(login); kept || s.client.Username == "" {
		return true
	}
	st, _, err := retryBy(ctx, s, inline, func(ctx context.Context) (*pb.StatusResponse, error) {
		return pb.NewMaintenanceClient(s.client.ActiveConnection()).Status(ctx, &pb.StatusRequest{}, grpc.WaitForReady(true))
	})
	return err != nil || !strings.HasPrefix(st.Version, "3.4.")
}
