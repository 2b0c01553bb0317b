package interceptor_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/internal/testpb"
	"github.com/lockaround/lockaround/middleware/httplock"
)

// answered is how one error is answered, as a cell of the table has it.
type answered struct{ http, grpc string }

// trailers is a stream of a server that notes what is sent at its end.
type trailers struct {
	grpc.ServerTransportStream
	md metadata.MD
}

func (s *trailers) SetTrailer(md metadata.MD) error {
	s.md = metadata.Join(s.md, md)
	return nil
}

// byGRPC is what a client is told when this is what a server's method does.
func byGRPC(t *testing.T, reason string, serve func(context.Context) error) string {
	s := &trailers{}
	got := tell(serve(grpc.NewContextWithServerTransportStream(t.Context(), s)))
	if got.reason != reason {
		t.Errorf("by gRPC the reason is %q; want %s", got.reason, reason)
	}
	var name string // as the table has it
	for text, code := range map[string]codes.Code{
		"ABORTED": codes.Aborted, "UNAVAILABLE": codes.Unavailable, "DEADLINE_EXCEEDED": codes.DeadlineExceeded, "INTERNAL": codes.Internal,
		"INVALID_ARGUMENT": codes.InvalidArgument, "FAILED_PRECONDITION": codes.FailedPrecondition, "RESOURCE_EXHAUSTED": codes.ResourceExhausted,
	} {
		if code == got.code {
			name = "`" + text + "`"
		}
	}
	if got.retry > 0 {
		name += ", `RetryInfo`"
	}
	if len(s.md) > 0 {
		name += ", `grpc-retry-pushback-ms: " + strings.Join(s.md.Get("grpc-retry-pushback-ms"), " ") + "`"
	}
	return name
}

// byHTTP is what a client is told by an answer.
func byHTTP(t *testing.T, reason string, w *httptest.ResponseRecorder) string {
	if !strings.Contains(w.Body.String(), `"code":"`+reason+`"`) {
		t.Errorf("by HTTP the code is in %s; want %s", w.Body, reason)
	}
	text := strconv.Itoa(w.Code)
	if w.Header().Get("Retry-After") != "" {
		text += ", `Retry-After`"
	}
	return text
}

// ofLock is how an error of a lock, or a queue, is answered that a handler took by itself.
func ofLock(t *testing.T, reason string, err error) answered {
	w := httptest.NewRecorder()
	httplock.Answer(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody), err)
	server := interceptor.Lock(newStore(t).locks, interceptor.Rules{}).UnaryServer()
	return answered{byHTTP(t, reason, w), byGRPC(t, reason, func(ctx context.Context) error {
		_, failed := server(ctx, &testpb.Request{}, &grpc.UnaryServerInfo{FullMethod: buy}, func(context.Context, any) (any, error) {
			return nil, interceptor.Status(err)
		})
		return failed
	})}
}

// ofToken is how a call is answered whose guard says this.
func ofToken(t *testing.T, reason string, says error, tokens ...string) answered {
	guard := guardFunc(func(context.Context, fence.Token) error { return says })
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
	r.Header[fence.Header] = tokens
	httplock.Fence(guard, "k")(http.NotFoundHandler()).ServeHTTP(w, r)
	server := interceptor.Fence(guard, interceptor.FenceRules{buy: "k"}).UnaryServer()
	return answered{byHTTP(t, reason, w), byGRPC(t, reason, func(ctx context.Context) error {
		ctx = metadata.NewIncomingContext(ctx, metadata.MD{strings.ToLower(fence.Header): tokens})
		_, err := server(ctx, &testpb.Request{}, &grpc.UnaryServerInfo{FullMethod: buy}, func(context.Context, any) (any, error) {
			t.Error("the handler ran")
			return nil, nil
		})
		return err
	})}
}

// The README of package core says which answers mean that a call may be sent again.
func TestTableOfWhatMayBeSentAgainIsTrue(t *testing.T) {
	text, err := os.ReadFile("../core/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "<!-- interceptor/again_test.go reads this table -->\n\n")
	if !ok {
		t.Fatal("core/README.md has no table of what may be sent again")
	}
	table, _, _ := strings.Cut(rest, "\n\n")
	// LOCK_CLOSED has two rows.
	says := map[string][]answered{}
	reason := regexp.MustCompile("`([A-Z_]+)`")
	for _, row := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(row, " | ")
		for _, r := range reason.FindAllStringSubmatch(cells[0], -1) {
			says[r[1]] = append(says[r[1]], answered{cells[1], cells[2]})
		}
	}

	const token = "k=7"
	of := func(op string, kind error) error { return &core.Error{Op: op, Policy: "p", Kind: kind} }
	lock := func(err error) func(*testing.T, string) answered {
		return func(t *testing.T, reason string) answered { return ofLock(t, reason, err) }
	}
	for _, tc := range []struct {
		reason string
		of     func(*testing.T, string) answered
	}{
		{"LOCK_BUSY", lock(of("acquire", core.ErrBusy))},
		{"LOCK_TIMEOUT", lock(of("acquire", core.ErrTimeout))},
		{"LOCK_FULL", lock(of("acquire", core.ErrFull))},
		{"LOCK_UNAVAILABLE", lock(of("acquire", core.ErrUnavailable))},
		{"LOCK_CLOSED", lock(of("acquire", core.ErrClosed))},
		{"DEADLINE_EXCEEDED", lock(of("acquire", context.DeadlineExceeded))},
		{"LOCK_LOST", lock(of("release", core.ErrLost))},
		{"LOCK_MAX_HOLD", lock(of("release", core.ErrMaxHold))},
		{"LOCK_CLOSED", lock(of("release", core.ErrClosed))},
		{"LOCK_FAILED", lock(of("release", core.ErrUnavailable))},
		{"LOCK_KEY_INVALID", lock(of("acquire", core.ErrKey))},
		{"LOCK_POLICY", lock(of("compile", core.ErrPolicy))},
		{"LOCK_DEADLOCK", lock(of("acquire", core.ErrDeadlock))},
		{"LOCK_NOT_HELD", lock(of("check", core.ErrNotHeld))},
		{"QUEUE_FULL", lock(&queue.Error{Kind: queue.ErrFull})},
		{"QUEUE_UNAVAILABLE", lock(&queue.Error{Kind: queue.ErrUnavailable})},
		{"LOCK_TOKEN_MISSING", func(t *testing.T, reason string) answered { return ofToken(t, reason, nil) }},
		{"LOCK_TOKEN_STALE", func(t *testing.T, reason string) answered { return ofToken(t, reason, fence.ErrStale, token) }},
		{"LOCK_TOKEN_UNDECIDED", func(t *testing.T, reason string) answered { return ofToken(t, reason, errors.New("down"), token) }},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			rows := says[tc.reason]
			if len(rows) == 0 {
				t.Fatal("the table has no row for it")
			}
			says[tc.reason] = rows[1:] // in their order
			if got := tc.of(t, tc.reason); got != rows[0] {
				t.Errorf("answered with %+v; the table says %+v", got, rows[0])
			}
		})
	}
	for reason, rows := range says {
		if len(rows) > 0 {
			t.Errorf("the table has a row for %s that no case here is of", reason)
		}
	}
}
