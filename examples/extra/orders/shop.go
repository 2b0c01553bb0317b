package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/policies"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/examples/extra/orders/orderspb"
	"github.com/lockaround/lockaround/interceptor"
)

// newServer puts the service together: its repositories with the locks of their
// directives, its methods with those of their options. A policy that cannot work, as its
// file may make it, is an error, and so is a name in that file that no policy has. Without
// locks, which is for showing what happens then, nothing is locked.
func newServer(locks *engine, db *database) (*grpc.Server, error) {
	s := &service{orders: &db.orders, stock: &db.stock, payments: &db.payments}
	if locks == nil {
		server := grpc.NewServer()
		orderspb.RegisterOrdersServer(server, s)
		return server, nil
	}
	if err := s.lock(locks.Engine); err != nil {
		return nil, err
	}
	li, err := interceptor.NewFromProto(locks.Engine) // FromProto would panic, with an operator's mistake
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(li.UnaryServer()), grpc.ChainStreamInterceptor(li.StreamServer()))
	orderspb.RegisterOrdersServer(server, s)
	reflection.Register(server) // for grpcurl
	return server, errors.Join(li.Validate(server), locks.CheckOverrides())
}

// lock puts locks around the repositories.
func (s *service) lock(locks *core.Engine) (err error) {
	if s.orders, err = NewOrdersWithLock(locks, s.orders); err != nil {
		return err
	}
	if s.stock, err = NewStockWithLock(locks, s.stock); err != nil {
		return err
	}
	s.payments, err = NewPaymentsWithLock(locks, s.payments)
	return err
}

// shop is a server at work.
type shop struct {
	address string
	server  *grpc.Server
	served  chan error // what Serve returned
	locks   *engine    // nil without
}

// open serves at an address, with locks or without. The locks are the shop's to close, also
// if it does not open.
func open(address string, locks *engine, db *database) (*shop, error) {
	server, err := newServer(locks, db)
	if err != nil {
		return nil, errors.Join(err, locks.Close())
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the shop: %w", err), locks.Close())
	}
	return start(server, listener, locks), nil
}

func start(server *grpc.Server, listener net.Listener, locks *engine) *shop {
	s := &shop{address: listener.Addr().String(), server: server, served: make(chan error, 1), locks: locks}
	go func() { s.served <- server.Serve(listener) }()
	return s
}

// Close lets calls end before their locks do: no new ones, then those that run, then the
// engine, then the connection to its store.
func (s *shop) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	late := context.AfterFunc(ctx, s.server.Stop)
	s.server.GracefulStop()
	late()
	err := <-s.served
	if s.locks == nil {
		return err
	}
	return errors.Join(err, s.locks.Shutdown(ctx), s.locks.Close())
}

// startTime and closeTime bound what the shop waits for when it opens and closes.
const (
	startTime = 30 * time.Second
	closeTime = 30 * time.Second
)

// engine is the locks, and the client of their store.
type engine struct {
	*core.Engine
	rdb *redis.Client // nil: locks in memory
}

// openLocks makes the engine, with the policies' overrides, and asks its store whether it
// can work with it.
func openLocks(ctx context.Context, o options) (*engine, error) {
	settings := []core.Option{core.WithNamespace("orders-example")}
	if o.policies != "" {
		overrides, err := policies.Load(o.policies)
		if err != nil {
			return nil, err
		}
		settings = append(settings, core.WithOverrides(overrides))
	}
	e := &engine{}
	var store driver.Driver = memlock.New()
	if o.redis != "" {
		e.rdb = redis.NewClient(&redis.Options{Addr: o.redis})
		store = redislock.New(e.rdb)
	}
	var err error
	if e.Engine, err = core.New(store, settings...); err != nil {
		return nil, errors.Join(err, e.hangUp())
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := e.Ping(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("the locks in Redis at %s: %w", o.redis, err), e.Close())
	}
	return e, nil
}

// Close ends the engine, and then the connection that it used. Nil has nothing to end.
func (e *engine) Close() error {
	if e == nil {
		return nil
	}
	return errors.Join(e.Engine.Close(), e.hangUp())
}

func (e *engine) hangUp() error {
	if e.rdb == nil {
		return nil
	}
	return e.rdb.Close()
}
