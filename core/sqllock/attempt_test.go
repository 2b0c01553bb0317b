package sqllock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest/counts"
)

func TestAnAnswerIsNeverTakenForSilence(t *testing.T) {
	s := newSession(config{}, driver.Config{StoreTimeout: time.Minute})
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
