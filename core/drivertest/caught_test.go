package drivertest_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/drivertest"
)

// TestBrokenDriver is what the processes of TestBrokenDriversAreCaught run.
func TestBrokenDriver(t *testing.T) {
	f := fault(os.Getenv(faultVariable))
	if f == none {
		t.Skip("runs in processes that TestBrokenDriversAreCaught starts")
	}
	drivertest.RunInBubbles(t, harness(f))
}

func TestBrokenDriversAreCaught(t *testing.T) {
	mustFail(t, "TestBrokenDriver", caught)
}

// mustFail runs a test in a process for each fault, and fails t unless all subtests fail
// that the fault is listed for.
func mustFail(t *testing.T, test string, caught map[fault][]string) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a process for each broken driver")
	}
	t.Attr("figure-6", fmt.Sprintf("%d broken drivers, each caught by the suite that all drivers pass", len(caught)))
	two := make(chan struct{}, 2) // processes at a time
	for f, checks := range caught {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			two <- struct{}{}
			defer func() { <-two }()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, os.Args[0],
				"-test.run=^"+test+"$/^("+strings.Join(checks, "|")+")$",
				"-test.v", "-test.parallel=16", "-test.timeout=100s")
			// Under -race a process would linger for a second at its end.
			cmd.Env = append(os.Environ(), faultVariable+"="+string(f), "GORACE=atexit_sleep_ms=0")
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Run(); err == nil {
				t.Errorf("the suite passes a driver whose fault is: %s", f)
			}
			for _, check := range checks {
				if !strings.Contains(out.String(), fmt.Sprintf("--- FAIL: %s/%s (", test, check)) {
					t.Errorf("%s passes a driver whose fault is: %s\n%s", check, f, out.String())
				}
			}
		})
	}
}

// TestEveryCheckIsProven sees to it that a check is not added without a driver
// that fails it.
func TestEveryCheckIsProven(t *testing.T) {
	mustBeProven(t, drivertest.Names(), caught)
}

func mustBeProven(t *testing.T, names []string, caught map[fault][]string) {
	t.Helper()
	var proven []string
	for _, checks := range caught {
		proven = append(proven, checks...)
	}
	for _, name := range names {
		if !slices.Contains(proven, name) {
			t.Errorf("no broken driver fails %s", name)
		}
	}
	word := regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	for _, name := range proven {
		if !slices.Contains(names, name) || !word.MatchString(name) {
			t.Errorf("%s is no check", name)
		}
	}
}
