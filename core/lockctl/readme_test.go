package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/testservers"
)

var update = flag.Bool("update", false, "write the output of the commands into README.md")

// block is a command in README.md, and what it printed.
var block = regexp.MustCompile("(?s)```console\n\\$ lockctl ([^\n]*)\n(.*?)```")

// volatile is what differs from run to run, and the spaces that follow from it.
var volatile = []struct{ pattern, to string }{
	{`127\.0\.0\.1:\d+`, "ADDR"},
	{`\d{4}-\d\d-\d\dT[\d:.]+Z`, "TIME"},
	{`\d{4}-\d\d-\d\d`, "DATE"},
	{`\d\d:\d\d:\d\d`, "TIME"},
	{`\d{16,}`, "TOKEN"},
	{`\b(\d+m)?[\d.]+s\b`, "LEFT"},
	{`"remaining_ms":\d+`, `"remaining_ms":N`},
	{`(Redis|Valkey) [\d.]+`, "VERSION"},
	{`within \d+ms`, "within N"},
	{`\d+ of at most`, "N of at most"},
	{`[0-9a-f]{32,}`, "DIGEST"},
	{` +`, " "},
}

func settled(s string) string {
	for _, v := range volatile {
		s = regexp.MustCompile(v.pattern).ReplaceAllString(s, v.to)
	}
	return s
}

func TestReadmeHasWhatIsPrinted(t *testing.T) {
	server := testservers.Redis(t, "--maxmemory", "512mb", "--maxmemory-policy", "volatile-lru")
	store := "redis://" + server.Addr()
	s := service(t, store)
	named := func(identity string) *core.Engine {
		e, err := core.New(s.driver, core.WithNamespace("shop"), core.WithIdentity(identity), core.WithStoreTimeout(time.Minute), core.WithLogger(slog.New(slog.DiscardHandler)))
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
	orders, refunds := named("orders-7f9c"), named("refunds-2b1e")
	for _, p := range []core.Policy{{Key: "stock:42"}, {Key: "report:daily", Mode: core.Semaphore, Limit: 3}, {Key: "a\x1b[31m key"}} {
		p.TTL = 5 * time.Minute
		if _, err := orders.Acquire(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := refunds.Acquire(t.Context(), core.Policy{Key: "report:daily", Mode: core.Semaphore, Limit: 3, TTL: 5 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_, _ = refunds.Acquire(ctx, core.Policy{Key: "stock:42", TTL: 5 * time.Minute, Wait: core.Forever}) // it gets it by the release
	}()
	defer func() {
		cancel()
		<-waited
	}()
	for k, err := s.locks.Inspect(t.Context(), "stock:42"); k.Waiting == 0; k, err = s.locks.Inspect(t.Context(), "stock:42") {
		if err != nil {
			t.Fatal(err)
		}
	}
	s.queuePrefix, s.shards = "shop:queue:", 1
	park(t, store, s, "refund:A-1")

	old, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := block.ReplaceAllStringFunc(string(old), func(b string) string {
		parts := block.FindStringSubmatch(b)
		args := strings.Fields(parts[1])
		r := ctl(t, store, args...)
		printed := strings.ReplaceAll(r.out+r.errs, server.Addr(), "127.0.0.1:6379")
		if settled(printed) == settled(parts[2]) {
			return b
		}
		return "```console\n$ lockctl " + parts[1] + "\n" + printed + "```"
	})
	if text == string(old) {
		return
	}
	if !*update {
		t.Fatalf("README.md has not what the commands print; go test -update writes it:\n%s", text)
	}
	if err := os.WriteFile("README.md", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestReadmeHasEveryField(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{listJSON{}, keyJSON{}, holderJSON{}, nodeJSON{}, releaseJSON{}, doctorJSON{}, finding{}, queueJSON{}, parkedJSON{}, statusJSON{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !strings.Contains(string(text), "`"+name+"`") {
				t.Errorf("README.md does not name the field %s of %T", name, v)
			}
		}
	}
}
