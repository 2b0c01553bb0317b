package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/internal/kit"
)

func TestAnAnswerIsNeverTakenForSilence(t *testing.T) {
	db := sql.OpenDB(outage{})
	defer db.Close() //nolint:errcheck // it has no connection
	s := newSession(config{db: db}, driver.Config{StoreTimeout: time.Minute})
	defer func() { _ = s.Close(t.Context()) }()
	rounds := 20_000
	if counts.Full(t) {
		rounds *= 10
	}
	for i := range rounds {
		got, _, err := runAttempt(t.Context(), s, s.Closing, func(context.Context, *attempt) (int, error) { return i, nil })
		if got != i || err != nil {
			t.Fatalf("the answer %d came as %d, %v", i, got, err)
		}
	}
}

// countingTx counts its commits.
type countingTx struct {
	commits int
	err     error
}

func (t *countingTx) Commit() error {
	t.commits++
	return t.err
}

func TestAnAttemptIsGivenUpWithNothingChangedOnlyBeforeACommit(t *testing.T) {
	for name, err := range map[string]error{"answered": nil, "failed": errors.New("lost")} {
		a, tx := &attempt{}, &countingTx{err: err}
		if got := a.commit(tx.Commit); got != err {
			t.Errorf("%s: committed with %v", name, got)
		}
		if a.abandon() {
			t.Errorf("%s: the attempt has committed, and says that it has changed nothing", name)
		}
	}
	a, tx := &attempt{}, &countingTx{}
	if !a.abandon() {
		t.Error("an attempt without a COMMIT may have changed something")
	}
	if err := a.commit(tx.Commit); err != errAbandoned || tx.commits != 0 {
		t.Errorf("after it was given up it has committed %d times, with %v", tx.commits, err)
	}
}

// stateError is an error of PostgreSQL.
type stateError string

func (e stateError) Error() string    { return "SQLSTATE " + string(e) }
func (e stateError) SQLState() string { return string(e) }

func TestWhatTheServerAnsweredIsToldOfAnAttemptThatIsGivenUp(t *testing.T) {
	full := stateError("53300")
	for name, end := range map[string]time.Duration{"by its caller": time.Second, "after its time": time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			db := sql.OpenDB(outage{})
			s := newSession(config{db: db}, driver.Config{StoreTimeout: 3 * time.Second})
			defer func() { _, _ = s.Close(t.Context()), db.Close() }()
			ctx, cancel := context.WithTimeout(t.Context(), end)
			defer cancel()
			told := 0
			tries := &kit.Tries{Tell: func(err error) {
				if errors.Is(err, full) {
					told++
				}
			}}
			_, unchanged, err := runTries(ctx, s, s.Closing, tries, func(context.Context, *attempt) (int, error) { return 0, full })
			synctest.Wait()
			if !unchanged || !errors.Is(err, full) || !errors.As(err, new(*driver.RefusedError)) || errors.Is(err, context.DeadlineExceeded) != (end < s.timeout) {
				t.Errorf("given up %s: %v, unchanged %v", name, err, unchanged)
			}
			if told < 10 {
				t.Errorf("given up %s: the sink was told %d times", name, told)
			}
		})
	}
}
