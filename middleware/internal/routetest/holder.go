package routetest

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
)

// answersNameNobody refuses requests whose key another process holds. The server's own log names
// that process, and no answer does.
func answersNameNobody(t *testing.T, s Surface) {
	var log logtest.Buffer
	d := memlock.New()
	open := func(identity string) *core.Engine {
		e, err := core.New(d, core.WithNamespace("test"), core.WithStoreTimeout(2*time.Minute), core.WithIdentity(identity),
			core.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		return e
	}
	const holder, own, value = "orders-7f9c", "orders-0b1d", "4242"
	here := open(own)
	defer Hold(t, open(holder), "card:"+value)()
	lock := func(wait time.Duration) []Wrap {
		return []Wrap{{Engine: here, Policy: core.Policy{Key: "card:{path.card}", Wait: wait}}}
	}
	srv := Serve(t, s.Mount(t,
		Route{Pattern: "POST /try/{card}", Around: lock(core.TryOnce), Handler: Never(t)},
		Route{Pattern: "POST /wait/{card}", Around: lock(10 * time.Millisecond), Handler: Never(t)},
	))
	for path, code := range map[string]string{"/try/": "LOCK_BUSY", "/wait/": "LOCK_TIMEOUT"} {
		a := Send(t, srv, NewRequest(t, srv, http.MethodPost, path+value, ""))
		a.MustBe(t, 409, code)
		if text := fmt.Sprint(a.Header, a.Body); strings.Contains(text, holder) || strings.Contains(text, own) || strings.Contains(text, value) {
			t.Errorf("the answer tells %s", text)
		}
	}
	if text := log.String(); strings.Count(text, "lock.holder="+holder) != 2 || strings.Contains(text, value) {
		t.Errorf("the log should name the holder twice, and no value: %s", text)
	}
}
