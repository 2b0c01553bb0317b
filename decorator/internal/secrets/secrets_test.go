// Package secrets_test looks at what locks tell of themselves, on every surface: clients,
// callers, logs, spans and metrics are told no secret, whatever goes wrong. It is a package of
// its own so that users of decorator need nothing of what the other surfaces are made with.
package secrets_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/redislock"
)

// TestNobodyIsToldKeysOwnersPasswordsOrWhatTheStoreSays has every surface succeed and
// fail in every way that a store with a password makes possible, and reads what callers,
// clients, traces, metrics and logs are told of it.
func TestNobodyIsToldKeysOwnersPasswordsOrWhatTheStoreSays(t *testing.T) {
	v := newVault(t)
	// Where the server answers, it is waited for, however busy the machine is.
	const patience = 2 * time.Minute
	neighbour := v.engine(v.client("locks", secretPassword), core.WithStoreTimeout(patience))
	overwritten := v.engine(v.client("locks", secretPassword), core.WithStoreTimeout(patience))
	surfaces := 0
	const unanswered = 3 * time.Second // a refusal is asked for again for so long
	faults := []struct {
		name, user, password string
		ttl, timeout         time.Duration // 2 minutes where the time-out is 0
		before               func(key string)
		call                 func(context.Context) error
		reason               string
	}{
		{name: "free", call: v.watch},
		{name: "held", reason: "LOCK_BUSY", before: func(key string) {
			if _, err := neighbour.Acquire(t.Context(), core.Policy{Key: key}); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "lost", reason: "LOCK_LOST", ttl: 6 * time.Second, call: func(ctx context.Context) error {
			if err := v.admin.FlushAll(ctx).Err(); err != nil {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}},
		{name: "WRONGTYPE", reason: "LOCK_UNAVAILABLE", timeout: unanswered, before: func(key string) {
			if _, err := overwritten.Acquire(t.Context(), core.Policy{Key: key}); err != nil {
				t.Fatal(err)
			}
			names, err := v.admin.Keys(t.Context(), redislock.KeyPrefix+"*shop/"+key).Result()
			if err != nil || len(names) != 1 {
				t.Fatalf("%q is named %q, %v", key, names, err)
			}
			if err := v.admin.Set(t.Context(), names[0], "text", 0).Err(); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "NOPERM", reason: "LOCK_UNAVAILABLE", timeout: unanswered, user: "guest"},
		{name: "WRONGPASS", reason: "LOCK_UNAVAILABLE", timeout: unanswered, password: secretPassword + "-of-yesterday"},
		{name: "connect: ", reason: "LOCK_UNAVAILABLE", timeout: unanswered, before: func(string) {
			_, _ = neighbour.Close(), overwritten.Close() // while there is a server to hear of it
			v.admin.ShutdownNoSave(context.Background())
		}},
	}
	for _, f := range faults {
		call := f.call
		if call == nil {
			call = func(context.Context) error { t.Errorf("%s: a call ran without its lock", f.name); return nil }
		}
		rdb := v.client(cmp.Or(f.user, "locks"), cmp.Or(f.password, secretPassword))
		e := v.engine(rdb, core.WithStoreTimeout(cmp.Or(f.timeout, patience)))
		all := v.entrances(e, rdb, f.ttl, call)
		surfaces = len(all)
		if f.name != "connect: " {
			if err := v.admin.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range all {
			if f.before != nil {
				f.before(s.name + secretSKU)
			}
		}
		v.hidden = nil
		var entered sync.WaitGroup
		for _, s := range all {
			entered.Go(func() {
				want := f.reason
				if s.name == "job:" && f.name == "held" {
					want = "" // another replica has the tick
				}
				if got := s.enter(); got != want {
					t.Errorf("%s: %s%s", f.name, s.name, got)
				}
			})
		}
		entered.Wait()
		v.failedFor("operators", e.Ping(t.Context()))
		_, err := e.Inspect(t.Context(), "hand:"+secretSKU)
		v.failed(err)
		_, err = e.ForceRelease(t.Context(), "hand:"+secretSKU)
		v.failed(err)
		if f.reason == "LOCK_UNAVAILABLE" && !strings.Contains(strings.Join(v.hidden, "\n"), f.name) {
			t.Errorf("%s: nothing of that was there to be hidden: %q", f.name, v.hidden)
		}
		_ = e.Close() // the same
	}

	for _, span := range v.spans.GetSpans() {
		v.tell("spans", "%+v", span)
	}
	var rm metricdata.ResourceMetrics
	if err := v.metrics.Collect(context.Background(), &rm); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(rm.ScopeMetrics)
	if err != nil {
		t.Fatal(err)
	}
	v.tell("metrics", "%s", text)
	v.tell("logs", "%s", v.logs.String())

	secrets := []string{secretSKU, secretPassword, redislock.KeyPrefix}
	causes := []string{ // that the log names, in lines of their own, and nobody else is told
		v.addr, "WRONGTYPE", "NOPERM", "WRONGPASS", "Operation against", "permissions to", "username-password", "connection refused", "dial ", "connect:",
	}
	if len(v.owners) < surfaces {
		t.Errorf("%d owners of %d surfaces were seen", len(v.owners), surfaces)
	}
	for _, o := range v.owners {
		quoted := fmt.Sprintf("%q", o)
		secrets = append(secrets, o, hex.EncodeToString([]byte(o)), base64.StdEncoding.EncodeToString([]byte(o)), quoted[1:len(quoted)-1], fmt.Sprint([]byte(o)))
	}
	for observer, told := range v.text {
		hide := func(text string, secrets []string) {
			for _, secret := range secrets {
				if at := strings.Index(text, secret); at >= 0 {
					t.Errorf("the %s are told %q: …%s…", observer, secret, text[max(0, at-200):min(len(text), at+100)])
				}
			}
		}
		if observer == "operators" { // a ping tells them the cause, and what all keys begin with
			hide(told.String(), slices.DeleteFunc(slices.Clone(secrets), func(s string) bool { return s == redislock.KeyPrefix }))
			continue
		}
		hide(told.String(), secrets)
		var rest strings.Builder
		for line := range strings.Lines(told.String()) {
			if observer != "logs" || !strings.Contains(line, `"msg":"lockaround: the store `) {
				rest.WriteString(line)
			}
		}
		hide(rest.String(), causes)
	}
	for _, cause := range []string{"WRONGPASS", "NOPERM", "connect:"} {
		if !strings.Contains(v.logs.String(), cause) {
			t.Errorf("the log does not name the cause %s", cause)
		}
	}
	observers := []string{"http", "grpc", "callers", "operators", "spans", "metrics", "logs"}
	if slices.ContainsFunc(observers, func(o string) bool { return v.text[o] == nil || v.text[o].Len() < 100 }) {
		t.Error("an observer was told nothing")
	}
	t.Attr("figure-20", fmt.Sprintf("%d surfaces, %d faults, %d kinds of observers: 0 secrets", surfaces, len(faults), len(observers)))
}
