package decorator_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
	"github.com/lockaround/lockaround/decorator/queue"
)

func TestEnqueueTxNeedsAStoreWithTransactions(t *testing.T) {
	s := newRefundShop(t)
	f := s.process(decorator.SerialPolicy{}, nil)
	if _, err := f.EnqueueTx(t.Context(), nil, refund{ID: "1", OrderID: "A"}); !errors.Is(err, core.ErrPolicy) {
		t.Errorf("with a store in memory: %v; want core.ErrPolicy", err)
	}
}

// overStore is one whose transactions are over.
type overStore struct{ queue.Store }

func (s overStore) Open(name string, r queue.Rules) (queue.Queue, error) {
	q, err := s.Store.Open(name, r)
	return overQueue{q}, err
}

type overQueue struct{ queue.Queue }

func (overQueue) AppendTx(context.Context, *sql.Tx, string, queue.New) (queue.Place, error) {
	return queue.Place{}, fmt.Errorf("append: %w", sql.ErrTxDone)
}

func TestEnqueueTxSaysThatTheTransactionIsOver(t *testing.T) {
	f := decorator.Serial(roomtest.Engine(t, memlock.New()), refundPolicy, overStore{queue.NewMemory()}, func(context.Context, refund) error { return nil }, decorator.SerialPolicy{})
	_, err := f.EnqueueTx(t.Context(), new(sql.Tx), refund{ID: "1", OrderID: "A"})
	if !errors.Is(err, sql.ErrTxDone) || errors.Is(err, queue.ErrUnavailable) {
		t.Errorf("%v; want sql.ErrTxDone, and not queue.ErrUnavailable", err)
	}
}
