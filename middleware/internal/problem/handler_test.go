package problem

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
)

func TestErrorsOfAHandlersOwnLockBecomeTheAnswersOfARoutesLock(t *testing.T) {
	of := func(op string, kind error) error { return &core.Error{Op: op, Policy: "p", Kind: kind} }
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	ended, end := context.WithCancelCause(t.Context())
	end(core.ErrMaxHold)
	cancelled := func(cause error) error {
		return &core.Error{Op: "acquire", Policy: "p", Kind: context.Canceled, Cause: cause}
	}
	for _, tc := range []struct {
		name    string
		request context.Context
		err     error
		status  int // 0: not of a lock
		code    string
		ended   bool
	}{
		{"none", nil, nil, 0, "", false},
		{"the handler's own", nil, errors.New("sold out"), 0, "", false},
		{"the handler's own context", nil, context.Canceled, 0, "", false},
		{"of a guard", nil, fence.ErrStale, 0, "", false},
		{"busy", nil, of("acquire", core.ErrBusy), 409, "LOCK_BUSY", false},
		{"busy, wrapped", nil, fmt.Errorf("sell: %w", of("acquire", core.ErrBusy)), 409, "LOCK_BUSY", false},
		{"busy, beside another", nil, errors.Join(errors.New("x"), of("acquire", core.ErrTimeout)), 409, "LOCK_TIMEOUT", false},
		{"bare sentinel", nil, core.ErrBusy, 409, "LOCK_BUSY", false},
		{"store down", nil, of("acquire", core.ErrUnavailable), 503, "LOCK_UNAVAILABLE", false},
		{"store down at the release", nil, of("release", core.ErrUnavailable), 500, "LOCK_FAILED", true},
		{"no time left for a check", nil, of("check", context.DeadlineExceeded), 500, "LOCK_FAILED", true},
		{"check cancelled, client there", nil, of("check", context.Canceled), 500, "LOCK_FAILED", true},
		{"check cancelled, client gone", gone, of("check", context.Canceled), 500, "LOCK_FAILED", true},
		{"release cancelled, client there", nil, of("release", context.Canceled), 500, "LOCK_FAILED", true},
		{"check cancelled, outer lease over", ended, of("check", context.Canceled), 500, "LOCK_MAX_HOLD", true},
		{"busy before lost", nil, errors.Join(of("acquire", core.ErrBusy), of("release", core.ErrLost)), 500, "LOCK_LOST", true},
		{"store down at a ping", nil, of("ping", core.ErrUnavailable), 503, "LOCK_UNAVAILABLE", false},
		{"closed before", nil, of("acquire", core.ErrClosed), 503, "LOCK_CLOSED", false},
		{"closed meanwhile", nil, of("release", core.ErrClosed), 500, "LOCK_CLOSED", true},
		{"closed, as a context's cause", nil, core.ErrClosed, 500, "LOCK_CLOSED", true},
		{"lost", nil, of("release", core.ErrLost), 500, "LOCK_LOST", true},
		{"lost, as a context's cause", nil, core.ErrLost, 500, "LOCK_LOST", true},
		{"held too long", nil, of("release", core.ErrMaxHold), 500, "LOCK_MAX_HOLD", true},
		{"no value", nil, &core.Error{Op: "acquire", Kind: core.ErrKey, Placeholder: "SKU", Cause: core.ErrMissing}, 400, "LOCK_KEY_INVALID", false},
		{"of no kind", nil, &core.Error{}, 500, "LOCK_FAILED", false},
		{"of no kind, with a cause", nil, &core.Error{Op: "acquire", Cause: core.ErrBusy}, 500, "LOCK_FAILED", false},
		{"a typed nil", nil, (*core.Error)(nil), 0, "", false},
		{"a typed nil, wrapped", nil, fmt.Errorf("x: %w", (*core.Error)(nil)), 0, "", false},
		{"a typed nil before busy", nil, errors.Join((*core.Error)(nil), of("acquire", core.ErrBusy)), 409, "LOCK_BUSY", false},
		{"policy", nil, of("compile", core.ErrPolicy), 500, "LOCK_POLICY", false},
		{"nil engine", nil, of("do", core.ErrPolicy), 500, "LOCK_POLICY", false},
		{"deadlock", nil, of("acquire", core.ErrDeadlock), 500, "LOCK_DEADLOCK", false},
		{"not held", nil, of("check", core.ErrNotHeld), 500, "LOCK_NOT_HELD", false},
		{"client gone", gone, of("acquire", context.Canceled), 499, "CANCELLED", false},
		{"work cancelled, client there", nil, of("acquire", context.Canceled), 503, "CANCELLED", false},
		{"outer lease held too long", ended, cancelled(core.ErrMaxHold), 500, "LOCK_MAX_HOLD", true},
		{"outer lease lost", gone, cancelled(core.ErrLost), 500, "LOCK_LOST", true},
		{"outer lease closed", nil, cancelled(fmt.Errorf("x: %w", core.ErrClosed)), 500, "LOCK_CLOSED", true},
		{"outer lease over, work cancelled", ended, cancelled(context.Canceled), 500, "LOCK_MAX_HOLD", true},
		{"client gone, and said so", gone, cancelled(context.Canceled), 499, "CANCELLED", false},
		{"deadline", nil, of("acquire", context.DeadlineExceeded), 504, "DEADLINE_EXCEEDED", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			request := tc.request
			if request == nil {
				request = t.Context()
			}
			p, ended, ok := OfHandler(request, tc.err)
			if ok != (tc.status != 0) || ended != tc.ended || p.Status != tc.status || p.Code != tc.code || ended && p.retryAfter != "" {
				t.Errorf("got %+v, %v, %v; want %+v", p, ended, ok, tc)
			}
		})
	}
}

func TestAnswersHaveNoRetryAfterButTheirOwn(t *testing.T) {
	h := http.Header{"Retry-After": {"120"}}
	Undescribe(h, nil)
	if len(h) != 0 {
		t.Errorf("left of a handler's answer: %v", h)
	}
}
