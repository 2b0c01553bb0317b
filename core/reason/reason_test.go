package reason_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/reason"
)

var kinds = []error{
	core.ErrBusy, core.ErrTimeout, core.ErrUnavailable, core.ErrLost, core.ErrMaxHold, core.ErrNotHeld, core.ErrDeadlock,
	core.ErrKey, core.ErrPolicy, core.ErrClosed, context.Canceled, context.DeadlineExceeded,
	fence.ErrUndecided, fence.ErrStale, fence.ErrMissing, fence.ErrOtherKey, fence.ErrMalformed, errors.New("any other"),
}

// Either the request has not run, or neither status nor RetryAfter asks for it again.
func TestWhatMayHaveHadAnEffectIsNotAskedForAgain(t *testing.T) {
	for _, op := range []string{"acquire", "release", "check", "extend", "do", "ping"} {
		for _, kind := range kinds {
			err := &core.Error{Op: op, Kind: kind, RetryAfter: time.Second}
			failure, _ := core.FailureOf(err)
			r, ok := reason.Of(err)
			if !ok || r.MayHaveRun != (failure > core.Refused) || r.MayHaveRun && (r.HTTP != 500 || r.GRPC != 13 || r.Again || r.After != 0) {
				t.Errorf("%v: %+v", err, r)
			}
		}
	}
}

func TestEachReasonIsASentenceWithACodeAndTwoStatuses(t *testing.T) {
	for _, kind := range kinds {
		for _, r := range []reason.Reason{reason.Refused(kind), reason.Ended(kind), reason.Refused(&core.Error{Kind: kind, RetryAfter: time.Hour})} {
			if r.Code == "" || strings.ToUpper(r.Code) != r.Code || r.HTTP < 400 || r.GRPC == 0 || r.Text == "" || r.Text[:1] != strings.ToLower(r.Text[:1]) || strings.HasSuffix(r.Text, ".") || r.After > 3*time.Second {
				t.Errorf("%v: %+v", kind, r)
			}
		}
	}
}

// full is an error of something else.
type full struct{ why reason.Own }

func (full) Error() string        { return "full" }
func (f full) Reason() reason.Own { return f.why }

func TestErrorsOfSomethingElseMayHaveReasons(t *testing.T) {
	own := full{reason.Own{Code: "QUEUE_FULL", Text: "too many", HTTP: 429, GRPC: 8, Again: true, After: time.Minute}}
	want := reason.Reason{Code: "QUEUE_FULL", Text: "too many", HTTP: 429, GRPC: 8, Again: true, After: time.Minute}
	if r, ok := reason.Of(fmt.Errorf("order: %w", own)); !ok || r != want {
		t.Errorf("%+v, %v", r, ok)
	}
	if got := reason.Told(own); got != "full" {
		t.Errorf("told %q", got)
	}
	for _, err := range []error{nil, errors.New("sold out"), full{}, fence.ErrStale, context.Canceled} {
		if r, ok := reason.Of(err); ok {
			t.Errorf("%v: %+v", err, r)
		}
	}
}

func Example() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locks.Close() }()
	sale := core.Policy{Key: "stock:42", Name: "stock"}
	err = locks.Do(context.Background(), sale, func(ctx context.Context) error {
		return locks.Do(context.Background(), sale, func(context.Context) error { return nil }) // another request
	})
	if r, ok := reason.Of(err); ok {
		fmt.Println(r.HTTP, r.Code, r.Text)
	}
	// Output: 409 LOCK_BUSY another request that excludes this one is in progress
}
