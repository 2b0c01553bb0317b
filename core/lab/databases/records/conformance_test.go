package records_test

import (
	"context"
	"testing"

	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/decorator/idempotent/idempotenttest"
	"github.com/lockaround/lockaround/decorator/idempotent/sqlrecords"
)

func TestConformance(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		for _, options := range []string{"", d.other} {
			t.Run(options, func(t *testing.T) {
				s, err := sqlrecords.New(d.Connect(t, d.On.Addr(), options), d.dialect, "shop"+options)
				if err != nil {
					t.Fatal(err)
				}
				idempotenttest.Run(t, func(*testing.T) idempotent.Store { return s })
			})
			if d.other == "" {
				return
			}
		}
	})
}

// inTx is a store whose answers are stored in transactions.
type inTx struct{ *sqlrecords.Store }

func (s inTx) Finish(ctx context.Context, key string, c idempotent.Claim, answer []byte) (stored bool, err error) {
	tx, err := s.DB().BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }()
	if stored, err = s.FinishTx(ctx, tx, key, c, answer); err != nil || !stored {
		return false, err
	}
	return true, tx.Commit()
}

func TestConformanceInTransactions(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		s := inTx{d.store(t, d.DB)}
		idempotenttest.Run(t, func(*testing.T) idempotent.Store { return s })
	})
}
