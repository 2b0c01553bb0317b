package decorator_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
)

type tagged struct {
	SKU   string `lock:"sku"`
	Order *struct {
		ID int `lock:"id"`
	} `lock:"order"`
}

func TestTagAndGoNameLockTheSameKey(t *testing.T) {
	e := roomtest.Engine(t, memlock.New())
	byName, err := decorator.NewErr(e, core.Policy{Key: "stock:{SKU}:{Order.ID}"}, func(context.Context, *tagged) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	byTag := decorator.WithLock(e, core.Policy{Key: "stock:{sku}:{order.id}"}, func(ctx context.Context, in *tagged) (string, error) {
		l, _ := core.LeaseFrom(ctx)
		if err := byName(core.Detach(ctx), in); !errors.Is(err, core.ErrBusy) {
			t.Errorf("another call with the same values: %v", err)
		}
		return l.Key(), nil
	})
	in := &tagged{SKU: "A:1"}
	if _, err := byTag(t.Context(), in); !errors.Is(err, core.ErrKey) || !strings.Contains(err.Error(), "{order.id}: value is missing or empty") {
		t.Errorf("a nil pointer on the way: %v", err)
	}
	in.Order = &struct {
		ID int `lock:"id"`
	}{17}
	if key, err := byTag(t.Context(), in); err != nil || key != "stock:A%3A1:17" {
		t.Errorf("got %q, %v", key, err)
	}
}

func TestMisspeltTagIsRefusedBySurfaceWithASuggestion(t *testing.T) {
	e := roomtest.Engine(t, memlock.New())
	tokens, err := fence.NewSQL(fence.PostgreSQL, "")
	if err != nil {
		t.Fatal(err)
	}
	p := core.Policy{Key: "stock:{sku}:{order.it}"}
	_, withLock := decorator.New(e, p, func(context.Context, tagged) (int, error) { return 0, nil })
	_, withLockErr := decorator.NewErr(e, p, func(context.Context, tagged) error { return nil })
	_, withLockTx := decorator.NewTx(e, p, decorator.Database{DB: new(sql.DB), Fence: tokens},
		func(context.Context, *sql.Tx, tagged) (int, error) { return 0, nil })
	for _, err := range []error{withLock, withLockErr, withLockTx} {
		if !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), "column 13: {order.it}: ") || !strings.Contains(err.Error(), "has no field it; did you mean id?") {
			t.Errorf("got %v", err)
		}
	}
}
