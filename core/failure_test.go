package core_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

func lockError(op string, kind error) *core.Error {
	return &core.Error{Op: op, Policy: "p", Kind: kind, Cause: errors.New("10.0.0.7 said no")}
}

func TestFailureSaysWhetherTheCallMayHaveRun(t *testing.T) {
	cancelled := func(cause error) error {
		return &core.Error{Op: "acquire", Policy: "p", Kind: context.Canceled, Cause: cause}
	}
	busy, lost := lockError("acquire", core.ErrBusy), lockError("release", core.ErrLost)
	for _, tc := range []struct {
		name string
		err  error
		want core.Failure
		by   error // nil: the error itself, or none with NoFailure
	}{
		{"none", nil, core.NoFailure, nil},
		{"the call's own", errors.New("sold out"), core.NoFailure, nil},
		{"the call's own context", context.Canceled, core.NoFailure, nil},
		{"why there is no value", core.ErrMissing, core.NoFailure, nil},
		{"a typed nil", (*core.Error)(nil), core.NoFailure, nil},
		{"a typed nil, wrapped", fmt.Errorf("x: %w", (*core.Error)(nil)), core.NoFailure, nil},
		{"a typed nil before busy", errors.Join((*core.Error)(nil), busy), core.Refused, busy},
		{"busy", busy, core.Refused, nil},
		{"busy, wrapped", fmt.Errorf("sell: %w", busy), core.Refused, busy},
		{"busy, beside the call's own", errors.Join(errors.New("x"), busy), core.Refused, busy},
		{"bare busy", core.ErrBusy, core.Refused, nil},
		{"bare busy, wrapped", fmt.Errorf("sell: %w", core.ErrBusy), core.Refused, core.ErrBusy},
		{"bare busy before one that says more", errors.Join(core.ErrTimeout, busy), core.Refused, busy},
		{"the first of two", errors.Join(busy, lockError("acquire", core.ErrTimeout)), core.Refused, busy},
		{"store down", lockError("acquire", core.ErrUnavailable), core.Refused, nil},
		{"store down at a ping", lockError("ping", core.ErrUnavailable), core.Refused, nil},
		{"engine closed at an inspection", lockError("inspect", core.ErrClosed), core.Refused, nil},
		{"no time left", lockError("acquire", context.DeadlineExceeded), core.Refused, nil},
		{"cancelled", cancelled(context.Canceled), core.Refused, nil},
		{"engine closed", lockError("acquire", core.ErrClosed), core.Refused, nil},
		{"of no kind", &core.Error{}, core.Refused, nil},
		{"of no kind, with a cause", &core.Error{Op: "acquire", Cause: core.ErrLost}, core.Refused, nil},
		{"policy", lockError("compile", core.ErrPolicy), core.Refused, nil},
		{"not held", lockError("check", core.ErrNotHeld), core.Refused, nil},
		{"store down at the release", lockError("release", core.ErrUnavailable), core.Unconfirmed, nil},
		{"no time left for a check", lockError("check", context.DeadlineExceeded), core.Unconfirmed, nil},
		{"cancelled in a check", lockError("check", context.Canceled), core.Unconfirmed, nil},
		{"cancelled in a release", lockError("release", context.Canceled), core.Unconfirmed, nil},
		{"lost", lost, core.Ended, nil},
		{"held too long", lockError("release", core.ErrMaxHold), core.Ended, nil},
		{"closed meanwhile", lockError("release", core.ErrClosed), core.Ended, nil},
		{"lost, as a context's cause", core.ErrLost, core.Ended, nil},
		{"closed, as a context's cause", core.ErrClosed, core.Ended, nil},
		{"the lease around it lost", cancelled(core.ErrLost), core.Ended, core.ErrLost},
		{"the lease around it closed", cancelled(fmt.Errorf("x: %w", core.ErrClosed)), core.Ended, core.ErrClosed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			by := tc.by
			if by == nil && tc.want != core.NoFailure {
				by = tc.err
			}
			if got, gotBy := core.FailureOf(tc.err); got != tc.want || gotBy != by {
				t.Errorf("got %d by %v; want %d by %v", got, gotBy, tc.want, by)
			}
		})
	}
}

func TestEndedLeaseOutranksRefusalsInAnyOrder(t *testing.T) {
	of := lockError
	for _, tc := range []struct {
		name         string
		heavy, light error
		want         core.Failure
	}{
		{"lost, busy", of("release", core.ErrLost), of("acquire", core.ErrBusy), core.Ended},
		{"lost, store down", of("release", core.ErrLost), of("acquire", core.ErrUnavailable), core.Ended},
		{"bare lost, busy", core.ErrLost, of("acquire", core.ErrBusy), core.Ended},
		{"lost, bare busy", of("release", core.ErrLost), core.ErrBusy, core.Ended},
		{"held too long, timeout", of("release", core.ErrMaxHold), of("acquire", core.ErrTimeout), core.Ended},
		{"closed, the handler's own", of("release", core.ErrClosed), errors.New("sold out"), core.Ended},
		{"unconfirmed release, busy", of("release", core.ErrUnavailable), of("acquire", core.ErrBusy), core.Unconfirmed},
		{"unconfirmed check, closed before", of("check", context.DeadlineExceeded), of("acquire", core.ErrClosed), core.Unconfirmed},
		{"lost, unconfirmed release", of("check", core.ErrLost), of("release", core.ErrUnavailable), core.Ended},
	} {
		for order, err := range map[string]error{
			"first":       errors.Join(tc.heavy, tc.light),
			"last":        errors.Join(tc.light, tc.heavy),
			"by two %w":   fmt.Errorf("x: %w", fmt.Errorf("%w; %w", tc.light, tc.heavy)),
			"deep inside": fmt.Errorf("x: %w", errors.Join(tc.light, fmt.Errorf("y: %w", tc.heavy))),
		} {
			if got, by := core.FailureOf(err); got != tc.want || by != tc.heavy {
				t.Errorf("%s, %s: got %d by %v; want %d", tc.name, order, got, by, tc.want)
			}
		}
	}
}

// What an engine says is told apart, not what a test has made up.
func TestCheckWhoseContextEndsIsUnconfirmed(t *testing.T) {
	locks, err := core.New(memlock.New(), core.WithNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close() }()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := locks.Acquire(gone, core.Policy{Key: "k"}); failureOf(err) != core.Refused {
		t.Errorf("an acquisition that was cancelled, %v, is %d", err, failureOf(err))
	}
	lease, err := locks.Acquire(t.Context(), core.Policy{Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Check(gone); !errors.Is(err, context.Canceled) || failureOf(err) != core.Unconfirmed {
		t.Errorf("a check that was cancelled, %v, is %d", err, failureOf(err))
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := lease.Release(t.Context()); failureOf(err) != core.Refused {
		t.Errorf("a second release, %v, is %d", err, failureOf(err))
	}
}

func failureOf(err error) core.Failure {
	f, _ := core.FailureOf(err)
	return f
}
