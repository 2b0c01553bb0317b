package problem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/reason"
	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/middleware/internal/body"
)

func TestErrorsOfCallsThatNeverRanBecomeProblems(t *testing.T) {
	const secret = "10.0.0.7:6379 said secret"
	of := func(kind error) *core.Error {
		return &core.Error{Op: "acquire", Policy: "p", Kind: kind, Cause: errors.New(secret)}
	}
	after := func(e *core.Error, d time.Duration) *core.Error { e.RetryAfter = d; return e }
	key := func(cause error) *core.Error {
		return &core.Error{Op: "acquire", Policy: "p", Kind: core.ErrKey, Placeholder: "path.sku", Cause: cause}
	}
	once := func(kind error) error { return &idempotent.Error{Policy: "p", Kind: kind, Cause: errors.New(secret)} }
	slow := of(core.ErrUnavailable)
	slow.Cause = context.DeadlineExceeded
	for _, tc := range []struct {
		name       string
		err        error
		status     int
		code       string
		retryAfter string
		says       string
	}{
		{"busy", of(core.ErrBusy), 409, "LOCK_BUSY", "1", ""},
		{"busy for 1 ms", after(of(core.ErrBusy), time.Millisecond), 409, "LOCK_BUSY", "1", ""},
		{"busy for 29.1 s", after(of(core.ErrBusy), 29100*time.Millisecond), 409, "LOCK_BUSY", "3", ""},
		{"busy for 2 s", after(of(core.ErrBusy), 2*time.Second), 409, "LOCK_BUSY", "2", ""},
		{"busy for ever", after(of(core.ErrBusy), core.Forever), 409, "LOCK_BUSY", "3", ""},
		{"busy for less than nothing", after(of(core.ErrBusy), -time.Hour), 409, "LOCK_BUSY", "1", ""},
		{"wait ran out", after(of(core.ErrTimeout), 5*time.Second), 409, "LOCK_TIMEOUT", "3", ""},
		{"store down", of(core.ErrUnavailable), 503, "LOCK_UNAVAILABLE", "", ""},
		{"store too slow", slow, 503, "LOCK_UNAVAILABLE", "", ""},
		{"engine closed", of(core.ErrClosed), 503, "LOCK_CLOSED", "", ""},
		{"request's deadline", of(context.DeadlineExceeded), 504, "DEADLINE_EXCEEDED", "", ""},
		{"request's bare deadline", context.DeadlineExceeded, 504, "DEADLINE_EXCEEDED", "", ""},
		{"value missing", key(core.ErrMissing), 400, "LOCK_KEY_INVALID", "", "missing"},
		{"value repeated", key(core.ErrRepeated), 400, "LOCK_KEY_INVALID", "", "more than once"},
		{"value unreadable", key(fmt.Errorf("%w: "+secret, core.ErrInvalid)), 400, "LOCK_KEY_INVALID", "", "cannot be read"},
		{"value unreadable with a reason", key(&body.Fault{Kind: core.ErrInvalid, Reason: "the reason"}), 400, "LOCK_KEY_INVALID", "", "the reason"},
		{"value's source too large", key(core.ErrTooLarge), 413, "BODY_TOO_LARGE", "", "too large"},
		{"key too long", of(core.ErrKey), 400, "LOCK_KEY_INVALID", "", "too long"},
		{"body unreadable", fmt.Errorf("%w: "+secret, body.ErrUnreadable), 400, "BODY_UNREADABLE", "", ""},
		{"body too slow", fmt.Errorf("%w: %w", body.ErrUnreadable, os.ErrDeadlineExceeded), 408, "BODY_TIMEOUT", "", ""},
		{"body cut off", fmt.Errorf("%w: %w", body.ErrUnreadable, core.ErrTooLarge), 413, "BODY_TOO_LARGE", "", ""},
		{"policy", of(core.ErrPolicy), 500, "LOCK_POLICY", "", ""},
		{"deadlock", of(core.ErrDeadlock), 500, "LOCK_DEADLOCK", "", ""},
		{"not held", of(core.ErrNotHeld), 500, "LOCK_NOT_HELD", "", ""},
		{"token stale", fmt.Errorf("%w: "+secret, fence.ErrStale), 412, "LOCK_TOKEN_STALE", "", ""},
		{"token missing", fence.ErrMissing, 400, "LOCK_TOKEN_MISSING", "", ""},
		{"token of another key", fence.ErrOtherKey, 400, "LOCK_TOKEN_OTHER_KEY", "", ""},
		{"token malformed", fence.ErrMalformed, 400, "LOCK_TOKEN_MALFORMED", "", "Fencing-Token"},
		{"guard down", fmt.Errorf("%w: %w", fence.ErrUndecided, errors.New(secret)), 503, "LOCK_TOKEN_UNDECIDED", "", ""},
		{"guard too slow", fmt.Errorf("%w: %w", fence.ErrUndecided, context.DeadlineExceeded), 503, "LOCK_TOKEN_UNDECIDED", "", ""},
		{"lease of a lock around it over", &core.Error{Op: "acquire", Kind: context.Canceled, Cause: core.ErrMaxHold}, 500, "LOCK_MAX_HOLD", "", ""},
		{"used for another request", once(idempotent.ErrMismatch), 422, "IDEMPOTENCY_MISMATCH", "", "another request"},
		{"died", once(idempotent.ErrUnknown), 422, "IDEMPOTENCY_UNKNOWN", "", "not known"},
		{"no replay", once(idempotent.ErrNoReplay), 422, "IDEMPOTENCY_NO_REPLAY", "", "cannot be replayed"},
		{"records down", once(idempotent.ErrUnavailable), 503, "IDEMPOTENCY_UNAVAILABLE", "1", ""},
		{"records behind a lock", &idempotent.Error{Kind: idempotent.ErrUnavailable, Cause: of(core.ErrBusy)}, 503, "IDEMPOTENCY_UNAVAILABLE", "1", ""},
		{"a value's records down", key(fmt.Errorf("%w: %w", core.ErrInvalid, once(idempotent.ErrUnavailable))), 400, "LOCK_KEY_INVALID", "", ""},
		{"unknown", errors.New(secret), 500, "LOCK_FAILED", "", ""},
		{"wrapped", fmt.Errorf("x: %w", of(core.ErrBusy)), 409, "LOCK_BUSY", "1", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, method := range []string{http.MethodPost, http.MethodHead} {
				w := httptest.NewRecorder()
				OfRefused(tc.err).Write(w, method)
				if w.Code != tc.status || w.Header().Get("Retry-After") != tc.retryAfter {
					t.Errorf("%s: status %d, Retry-After %q; want %d, %q", method, w.Code, w.Header().Get("Retry-After"), tc.status, tc.retryAfter)
				}
				if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
					t.Errorf("%s: Content-Type %q", method, got)
				}
				if strings.Contains(w.Body.String(), "secret") {
					t.Errorf("%s: what the store said is shown: %s", method, w.Body)
				}
				if method == http.MethodHead {
					if w.Body.Len() > 0 {
						t.Errorf("HEAD has the body %s", w.Body)
					}
					continue
				}
				var p Problem
				if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
					t.Fatalf("%v in %s", err, w.Body)
				}
				if p.Type != "about:blank" || p.Title != http.StatusText(tc.status) || p.Status != tc.status || p.Code != tc.code {
					t.Errorf("got %+v; want status %d, code %s", p, tc.status, tc.code)
				}
				if p.Detail == "" || !strings.Contains(p.Detail, tc.says) {
					t.Errorf("detail %q does not say %q", p.Detail, tc.says)
				}
				var e *core.Error
				if errors.As(tc.err, &e) && p.Placeholder != e.Placeholder {
					t.Errorf("placeholder %q; want %q", p.Placeholder, e.Placeholder)
				}
			}
		})
	}
}

func TestLossIsNamedAfterItsCause(t *testing.T) {
	for err, code := range map[error]string{core.ErrLost: "LOCK_LOST", core.ErrMaxHold: "LOCK_MAX_HOLD", core.ErrClosed: "LOCK_CLOSED"} {
		p := OfEnded(&core.Error{Op: "do", Kind: err})
		if p.Status != 500 || p.Code != code || p.Detail == "" {
			t.Errorf("%v: got %+v; want %s", err, p, code)
		}
	}
}

func TestCancelledCallHasItsOwnStatus(t *testing.T) {
	p := OfRefused(&core.Error{Op: "acquire", Kind: context.Canceled})
	if p.Status != reason.Gone || p.Code != "CANCELLED" {
		t.Errorf("got %+v", p)
	}
}

func TestAnswersThatCannotBeReadAreLogged(t *testing.T) {
	for cause, logged := range map[error]bool{nil: false, errors.New("secret"): true} {
		var text strings.Builder
		err := &idempotent.Error{Policy: "pay", Kind: idempotent.ErrNoReplay, Detail: "it cannot be read", Cause: cause}
		OfRefused(err).Log(slog.New(slog.NewTextHandler(&text, nil)), "pay", "/payments", err)
		if got := text.String(); (got != "") != logged || logged && !strings.Contains(got, "done before cannot be read") || strings.Contains(got, "secret") {
			t.Errorf("caused by %v: %q", cause, got)
		}
	}
}
