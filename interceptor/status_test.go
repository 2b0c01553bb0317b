package interceptor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/interceptor"
)

func TestStatusSaysWhatTheInterceptorSays(t *testing.T) {
	const secret = "10.0.0.7 said secret"
	of := func(op string, kind error) error {
		return &core.Error{Op: op, Policy: "p", Kind: kind, Cause: errors.New(secret)}
	}
	for _, tc := range []struct {
		name   string
		err    error
		code   codes.Code
		reason string // empty: returned as it is
		retry  bool
		logged bool
	}{
		{"nil", nil, codes.OK, "", false, false},
		{"the handler's own", errors.New("sold out"), codes.Unknown, "", false, false},
		{"the handler's own status", status.Error(codes.NotFound, "no such product"), codes.NotFound, "", false, false},
		{"the handler's own context", context.Canceled, codes.Unknown, "", false, false},
		{"of a guard", fence.ErrStale, codes.Unknown, "", false, false},
		{"busy", of("acquire", core.ErrBusy), codes.Aborted, "LOCK_BUSY", true, false},
		{"busy, wrapped in what is not to be told", fmt.Errorf("secret: %w", of("acquire", core.ErrTimeout)), codes.Aborted, "LOCK_TIMEOUT", true, false},
		{"bare sentinel", core.ErrBusy, codes.Aborted, "LOCK_BUSY", true, false},
		{"store down", of("acquire", core.ErrUnavailable), codes.Unavailable, "LOCK_UNAVAILABLE", false, false},
		{"store down at the release", of("release", core.ErrUnavailable), codes.Internal, "LOCK_FAILED", false, true},
		{"no time left for a check", of("check", context.DeadlineExceeded), codes.Internal, "LOCK_FAILED", false, true},
		{"cancelled in a check", of("check", context.Canceled), codes.Internal, "LOCK_FAILED", false, true},
		{"cancelled in a release", of("release", context.Canceled), codes.Internal, "LOCK_FAILED", false, true},
		{"busy before lost", errors.Join(of("acquire", core.ErrBusy), of("release", core.ErrLost)), codes.Internal, "LOCK_LOST", false, false},
		{"store down at a ping", of("ping", core.ErrUnavailable), codes.Unavailable, "LOCK_UNAVAILABLE", false, false},
		{"closed before", of("acquire", core.ErrClosed), codes.Unavailable, "LOCK_CLOSED", false, false},
		{"closed meanwhile", of("release", core.ErrClosed), codes.Internal, "LOCK_CLOSED", false, true},
		{"closed, as a context's cause", core.ErrClosed, codes.Internal, "LOCK_CLOSED", false, true},
		{"lost", of("release", core.ErrLost), codes.Internal, "LOCK_LOST", false, false},
		{"held too long", of("release", core.ErrMaxHold), codes.Internal, "LOCK_MAX_HOLD", false, false},
		{"policy", of("compile", core.ErrPolicy), codes.Internal, "LOCK_POLICY", false, true},
		{"deadlock", of("acquire", core.ErrDeadlock), codes.Internal, "LOCK_DEADLOCK", false, true},
		{"deadline", of("acquire", context.DeadlineExceeded), codes.DeadlineExceeded, "DEADLINE_EXCEEDED", false, false},
		{"cancelled", of("acquire", context.Canceled), codes.Canceled, "CANCELLED", false, false},
		{"cancelled by the end of the lease around it", &core.Error{Op: "acquire", Kind: context.Canceled, Cause: core.ErrMaxHold}, codes.Internal, "LOCK_MAX_HOLD", false, false},
		{"of no kind", &core.Error{}, codes.Internal, "LOCK_FAILED", false, true},
		{"a typed nil", (*core.Error)(nil), codes.Unknown, "", false, false},
		{"a typed nil before busy", errors.Join((*core.Error)(nil), core.ErrBusy), codes.Aborted, "LOCK_BUSY", true, false},
		{"no value", &core.Error{Op: "acquire", Kind: core.ErrKey, Placeholder: "SKU", Cause: core.ErrMissing}, codes.InvalidArgument, "LOCK_KEY_INVALID", false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log bytes.Buffer
			before := slog.Default()
			slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
			defer slog.SetDefault(before)

			got := interceptor.Status(tc.err)
			if tc.reason == "" && !errors.Is(got, tc.err) || !errors.Is(got, tc.err) && tc.err != nil {
				t.Errorf("%v is not found in %v", tc.err, got)
			}
			st, _ := status.FromError(got)
			if st.Code() != tc.code || tc.reason != "" && strings.Contains(st.Message()+log.String(), "secret") {
				t.Errorf("got %v: %s; logged %s", st.Code(), st.Message(), &log)
			}
			reason, retry := "", false
			for _, d := range st.Details() {
				switch d := d.(type) {
				case *errdetails.ErrorInfo:
					reason = d.Reason
				case *errdetails.RetryInfo:
					retry = true
				}
			}
			if reason != tc.reason || retry != tc.retry {
				t.Errorf("got reason %q, RetryInfo %v; want %q, %v", reason, retry, tc.reason, tc.retry)
			}
			if again := interceptor.Status(got); again != got {
				t.Errorf("a status is made of one again: %v", again)
			}
			if logged := strings.Count(log.String(), "error.type="+tc.reason); (logged == 1) != tc.logged || logged > 1 {
				t.Errorf("logged %d times: %s", logged, &log)
			}
		})
	}
}
