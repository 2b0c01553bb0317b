package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/testservers"
)

// TestMain is also the program that the replicas are.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-replica") {
		main()
	}
	goleak.VerifyTestMain(m)
}

func TestEachTickIsCompletedOnceAlthoughAReplicaIsKilled(t *testing.T) {
	for _, scheduler := range []string{"cron", "gocron"} {
		t.Run(scheduler, func(t *testing.T) {
			t.Parallel()
			// The schedule bears replicas that are late by a fifteenth of the period. On a machine
			// that is later than that they are tried with a longer one.
			for _, period := range []time.Duration{3 * time.Second, 15 * time.Second, time.Minute} {
				late := lateness(t)
				fault := demonstrated(t, scheduler, period)
				if by := late(); fault == "" || by <= period/15 || period == time.Minute {
					if fault != "" {
						t.Errorf("with a period of %v: %s", period, fault)
					}
					return
				} else {
					t.Logf("the machine was late by %v, a period of %v bears %v: %s", by, period, period/15, fault)
				}
			}
		})
	}
}

// demonstrated runs the program, and returns what is wrong with what it says.
func demonstrated(t *testing.T, scheduler string, period time.Duration) (fault string) {
	t.Helper()
	var out, errs bytes.Buffer
	if status := run(t.Context(), []string{"-redis", testservers.Redis(t).Addr(), "-scheduler", scheduler, "-ticks", "3", "-period", period.String()}, nil, &out, &errs); status != 0 {
		fault = fmt.Sprintf("exit status %d: %s\n", status, errs.String())
	}
	for _, want := range []string{
		`(?m)^(..:..:..) replica (\d) begins the report and is killed, token \d+$\n^..:..:.. replica \d completes the report`,
		`(?m)^..:..:.. replica \d has caught it up$`,
		`(?m)^3 ticks, each of them completed once$`,
	} {
		if n := len(regexp.MustCompile(want).FindAllString(out.String(), -1)); n != 1 {
			fault += fmt.Sprintf("%d times %s in\n%s", n, want, out.String())
		}
	}
	return fault
}

// lateness measures by how much this machine oversleeps, as replicas do that are processes
// like this one, until its result is asked for.
func lateness(t *testing.T) (worst func() time.Duration) {
	const nap = time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	var most time.Duration
	var measuring sync.WaitGroup
	measuring.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			time.Sleep(nap)
			most = max(most, time.Since(began)-nap)
		}
	})
	return func() time.Duration {
		stop()
		measuring.Wait()
		return most
	}
}

func TestWhatCannotWorkIsSaid(t *testing.T) {
	for _, tc := range []struct {
		args   []string
		status int
		says   string
	}{
		{nil, 2, "-redis is not set"},
		{[]string{"-redis", "x", "y"}, 2, `"y" is no flag`},
		{[]string{"-redis", "x", "-scheduler", "at"}, 2, `-scheduler is "at"; use cron or gocron`},
		{[]string{"-redis", "x", "-replicas", "1"}, 2, "-replicas is 1"},
		{[]string{"-redis", "x", "-ticks", "1"}, 2, "-ticks is 1"},
		{[]string{"-redis", "x", "-period", "7s"}, 2, "-period is 7s"},
		{[]string{"-reds", "x"}, 2, "not defined"},
		{[]string{"-help"}, 0, "host:port"},
		{[]string{"-replica", "-redis", "127.0.0.1:1"}, 1, "the Redis at 127.0.0.1:1"},
		{[]string{"-redis", "127.0.0.1:1"}, 1, "has ended"},
	} {
		var out, errs bytes.Buffer
		if status := run(t.Context(), tc.args, strings.NewReader(""), &out, &errs); status != tc.status || !strings.Contains(errs.String(), tc.says) {
			t.Errorf("%q: exit status %d, said %q; want %d and %q", tc.args, status, errs.String(), tc.status, tc.says)
		}
	}
}
