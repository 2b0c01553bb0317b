package serial_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/serial"
)

// database is that of a till, for transactions.
func database(s *roomtest.Till) decorator.Database {
	return decorator.Database{DB: s.DB, Fence: s.Fence}
}

func TestItemAndItsSequenceAreInOneTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := roomtest.NewTill(t)
		f := serial.MustTx(s.Engine, refundPolicy, database(s), queue.NewMemory(), func(ctx context.Context, tx *sql.Tx, _ refund) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO refunds`)
			return err
		}, serial.Policy{})
		work(t, f)
		place, err := f.Enqueue(t.Context(), refund{ID: "1", OrderID: "A"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		// The token, the item's sequence, the effect, the next one's sequence.
		if got, want := s.All("release"), "begin admit admit exec admit check commit"; got != want {
			t.Errorf("%s; want %s", got, want)
		}
		if st, err := f.Status(t.Context(), place.ID); err != nil || st.State != queue.Ended {
			t.Errorf("status %+v, %v; want it done", st, err)
		}
	})
}

func TestItemThatIsCommittedIsNotRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := roomtest.NewTill(t)
		s.On("admit", func(context.Context) error {
			if s.Count("admit")%2 == 0 { // the sequence, after the token
				return fence.ErrStale
			}
			return nil
		})
		f := serial.MustTx(s.Engine, refundPolicy, database(s), queue.NewMemory(), func(context.Context, *sql.Tx, refund) error {
			t.Error("the function runs again")
			return nil
		}, serial.Policy{})
		work(t, f)
		place, err := f.Enqueue(t.Context(), refund{ID: "1", OrderID: "A"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got, want := s.All("release"), "begin admit admit rollback"; got != want {
			t.Errorf("%s; want %s", got, want)
		}
		if st, err := f.Status(t.Context(), place.ID); err != nil || st.State != queue.Ended {
			t.Errorf("status %+v, %v; want it done", st, err)
		}
	})
}

func TestEnqueueTxNeedsAStoreWithTransactions(t *testing.T) {
	s := newRefundShop(t)
	f := s.process(serial.Policy{}, nil)
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
	f := serial.Must(roomtest.Engine(t, memlock.New()), refundPolicy, overStore{queue.NewMemory()}, func(context.Context, refund) error { return nil }, serial.Policy{})
	_, err := f.EnqueueTx(t.Context(), new(sql.Tx), refund{ID: "1", OrderID: "A"})
	if !errors.Is(err, sql.ErrTxDone) || errors.Is(err, queue.ErrUnavailable) {
		t.Errorf("%v; want sql.ErrTxDone, and not queue.ErrUnavailable", err)
	}
}
