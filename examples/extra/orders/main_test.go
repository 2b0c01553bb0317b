package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/examples/extra/orders/orderspb"
)

func TestAWrongPolicyFileIsRefusedAtStart(t *testing.T) {
	for _, tc := range []struct{ name, file, says string }{
		{"a misspelt policy", "policies:\n  refnd:\n    wait: 1s\n", `no policy has this name; did you mean "refund"?`},
		{"a misspelt directive", "policies:\n  putback:\n    wait: 1s\n", `no policy has this name; did you mean "put-back"?`},
		{"a misspelt field", "policies:\n  refund:\n    wiat: 1s\n", `locks.yaml:3:5: a policy has no field "wiat"; did you mean wait?`},
		{"an impossible option", "policies:\n  refund:\n    limit: 3\n", `orders.v1.Orders.RefundOrder: option (lockaround.v1.lock): lock compile "refund": invalid lock policy: Limit is 3 but Mode is exclusive`},
		{"an impossible directive", "policies:\n  take:\n    limit: 3\n", `lock compile "take": invalid lock policy: Limit is 3 but Mode is exclusive`},
		{"an impossible time", "policies:\n  take:\n    ttl: 1ns\n", `TTL is 1ns; driver memory needs at least 10ms`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "locks.yaml")
			if err := os.WriteFile(file, []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var errs strings.Builder
			if code := run(ctx, []string{"-listen", "127.0.0.1:0", "-policies", file}, whenWritten(stop), &errs); code != 1 {
				t.Errorf("exit status %d, want 1", code)
			}
			if !strings.Contains(errs.String(), tc.says) {
				t.Errorf("said %q, want %q in it", errs.String(), tc.says)
			}
		})
	}
}

// whenWritten is called with the first output, which is that the shop is open.
type whenWritten func()

func (f whenWritten) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

func TestAWrongCommandLineHasStatus2(t *testing.T) {
	for _, args := range [][]string{{"-lisen", "x"}, {"demo"}, {"-latency", "-1s"}} {
		var errs strings.Builder
		if code := run(t.Context(), args, io.Discard, &errs); code != 2 || errs.Len() == 0 {
			t.Errorf("%q: exit status %d, %q; want 2, and why", args, code, errs.String())
		}
	}
}

func TestDemonstrationSellsWhatThereIsAndRefundsItOnce(t *testing.T) {
	var out, errs strings.Builder
	if code := run(t.Context(), []string{"-demo"}, &out, &errs); code != 0 {
		t.Errorf("exit status %d: %s", code, errs.String())
	}
	if !regexp.MustCompile(`(?m)^with locks +40 +0 +60 +0 +40 `).MatchString(out.String()) {
		t.Errorf("printed no row of 40 sold, 0 oversold, 60 sold out, 0 left, 40 refunds:\n%s", out.String())
	}
}

func TestServesUntilItIsInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	r, w := io.Pipe()
	ended := make(chan int, 1)
	var errs strings.Builder
	go func() {
		ended <- run(ctx, []string{"-listen", "127.0.0.1:0", "-policies", "policies.yaml"}, w, &errs)
		_ = w.Close()
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatalf("exit status %d: %s", <-ended, errs.String())
	}
	conn := dial(t, strings.TrimSpace(strings.TrimPrefix(line, "serving orders.v1.Orders at")))
	if o, err := orderspb.NewOrdersClient(conn).PlaceOrder(t.Context(), order("o", "ann", "book")); err != nil || o.GetStatus() != orderspb.Status_PLACED {
		t.Errorf("%v, %v; want an order that is PLACED", o, err)
	}
	interrupt()
	if code := <-ended; code != 0 {
		t.Errorf("exit status %d after the interrupt: %s", code, errs.String())
	}
}

func TestACallEndsBeforeItsShopCloses(t *testing.T) {
	inShop(t, options{}, func(t *testing.T, s *site) {
		open := s.pause.next("put stock")
		place := inBackground(func() (*orderspb.Order, error) { return s.PlaceOrder(t.Context(), order("o", "ann", "book")) })
		place.waits(t, "its request is held up")
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			s.close(t)
		}()
		place.waits(t, "its request is held up")
		open()
		place.ends(t, orderspb.Status_PLACED)
		<-closed
		if err := s.locks.Ping(t.Context()); !errors.Is(err, core.ErrClosed) {
			t.Errorf("the locks afterwards: %v; want them closed", err)
		}
	})
}

func TestAnAddressInUseIsSaid(t *testing.T) {
	s, err := open("127.0.0.1:0", nil, newDatabase(assortment(), func(string) {}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var errs strings.Builder
	if code := run(t.Context(), []string{"-listen", s.address}, io.Discard, &errs); code != 1 || !strings.Contains(errs.String(), s.address) {
		t.Errorf("exit status %d: %q; want 1 and the address", code, errs.String())
	}
}
