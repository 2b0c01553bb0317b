package decorator_test

import (
	"errors"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator"
)

func TestEnqueueTxNeedsAStoreWithTransactions(t *testing.T) {
	s := newRefundShop(t)
	f := s.process(decorator.SerialPolicy{}, nil)
	if _, err := f.EnqueueTx(t.Context(), nil, refund{ID: "1", OrderID: "A"}); !errors.Is(err, core.ErrPolicy) {
		t.Errorf("with a store in memory: %v; want core.ErrPolicy", err)
	}
}
