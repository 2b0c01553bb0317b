package decorator_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
)

func TestTransactionThatCannotWorkIsRefusedWhereItIsWritten(t *testing.T) {
	till := newTill(t)
	with := func(change func(*decorator.Database)) decorator.Database {
		db := till.db
		change(&db)
		return db
	}
	toInt := decorator.OnBusy(func(context.Context, deduction, error) (int, error) { return 0, nil })
	shared, err := core.New(memlock.New(), core.WithNamespace("shop"),
		core.WithOverrides(map[string]core.Override{"stock:{SKU}": {Mode: new(core.Shared)}}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = shared.Close() }()
	bounded := new(roomtest.Journal).OpenDB()
	bounded.SetMaxOpenConns(3)
	defer func() { _ = bounded.Close() }()
	tight, err := core.New(pooled{memlock.New(), bounded}, core.WithNamespace("shop"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tight.Close() }()
	for _, tc := range []struct {
		name   string
		engine *core.Engine
		policy core.Policy
		db     decorator.Database
		fn     txFunc
		opts   []decorator.Option
		want   string
	}{
		{"nil engine", nil, stock, till.db, sell, nil, "engine is nil"},
		{"nil function", till.Engine, stock, till.db, nil, nil, "function is nil"},
		{"misspelt", till.Engine, core.Policy{Key: "stock:{sku}"}, till.db, sell, nil, "did you mean SKU?"},
		{"no database", till.Engine, stock, decorator.Database{}, sell, nil, "Database.DB is nil"},
		{"no fence", till.Engine, stock, with(func(db *decorator.Database) { db.Fence = nil }), sell, nil, "Database.Fence is nil"},
		{"a fence of nothing", till.Engine, stock, with(func(db *decorator.Database) { db.Fence = &fence.SQL{} }), sell, nil, "fence.NewSQL"},
		{"read only", till.Engine, stock, with(func(db *decorator.Database) { db.TxOptions = &sql.TxOptions{ReadOnly: true} }), sell, nil, "ReadOnly"},
		{"negative timeout", till.Engine, stock, with(func(db *decorator.Database) { db.EndTimeout = -time.Second }), sell, nil, "EndTimeout is -1s; use 0"},
		{"shared", till.Engine, core.Policy{Key: "stock:{SKU}", Mode: core.Shared}, till.db, sell, nil, "Mode is shared"},
		{"shared by an override", shared, stock, till.db, sell, nil, "Mode is shared"},
		{"the bounded pool of the locks", tight, stock, with(func(db *decorator.Database) { db.DB = bounded }), sell, nil, "has at most 3 connections"},
		{"semaphore", till.Engine, core.Policy{Key: "stock:{SKU}", Mode: core.Semaphore, Limit: 2}, till.db, sell, nil, "Mode is semaphore"},
		{"fallback of another result", till.Engine, stock, till.db, sell, []decorator.Option{toInt}, "OnBusy"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			check := func(err error) {
				t.Helper()
				if !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), `"stock:{`) {
					t.Errorf("%v does not say %q", err, tc.want)
				}
			}
			locked, err := decorator.NewTx(tc.engine, tc.policy, tc.db, tc.fn, tc.opts...)
			check(err)
			if locked != nil {
				t.Error("NewTx returned a function beside its error")
			}
			defer func() {
				err, _ := recover().(error)
				check(err)
			}()
			decorator.WithLockTx(tc.engine, tc.policy, tc.db, tc.fn, tc.opts...)
		})
	}
}

// tokenless is a store without tokens.
type tokenless struct{ *memlock.Driver }

func (d tokenless) Capabilities() driver.Capabilities {
	c := d.Driver.Capabilities()
	c.Tokens = driver.NoTokens
	return c
}

func (d tokenless) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	return tokenlessSession{s}, err
}

type tokenlessSession struct{ driver.Session }

func (s tokenlessSession) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := s.Session.Acquire(ctx, r)
	g.Token = 0
	return g, err
}

func TestTransactionWithoutATokenDoesNotRun(t *testing.T) {
	till := newTill(t)
	call := decorator.WithLockTx(roomtest.Engine(t, tokenless{memlock.New()}), stock, till.db, func(context.Context, *sql.Tx, deduction) (receipt, error) {
		t.Error("it ran")
		return receipt{}, nil
	})
	if _, err := call(t.Context(), deduction{SKU: "A"}); !errors.Is(err, fence.ErrMissing) || till.Count("commit") != 0 {
		t.Errorf("%s: %v", till.All(), err)
	}
}

// pooled is a driver that reaches its store by way of a pool.
type pooled struct {
	driver.Driver
	db *sql.DB
}

func (p pooled) Uses(pool any) bool { return pool == any(p.db) }
