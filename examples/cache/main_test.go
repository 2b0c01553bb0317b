package main

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/testservers"
)

// asProgram makes this test binary the program, for the processes that it starts.
const asProgram = "LOCKAROUND_TEST_CACHE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

func TestOneLoadsForAllWithTheLock(t *testing.T) {
	addr := testservers.Redis(t).Addr()
	t.Setenv(asProgram, "1")
	var out, errs bytes.Buffer
	if status := run(t.Context(), []string{"-redis", addr, "-run", "900ms", "-live", "300ms", "-load", "100ms"}, &out, &errs); status != 0 {
		t.Fatalf("exit status %d: %s\n%s", status, errs.String(), out.String())
	}
	for i, w := range ways {
		row := rowOf(t, out.String(), w.name)
		refills, loads, atATime := row[0], row[1], row[2]
		switch {
		case refills == 0:
			t.Errorf("%s: nobody loaded", w.name)
		case i == 0 && (loads < 10*processes*refills || atATime <= processes):
			t.Errorf("%s: %d loads for %d refills, %d at a time; want a crowd", w.name, loads, refills, atATime)
		case i > 0 && i < firstCached && (loads <= refills || atATime > processes):
			t.Errorf("%s: %d loads for %d refills, %d at a time; want one of each process", w.name, loads, refills, atATime)
		case i >= firstCached && (loads != refills || atATime != 1):
			t.Errorf("%s: %d loads for %d refills, %d at a time; want one", w.name, loads, refills, atATime)
		}
	}
	if t.Failed() {
		t.Log("\n" + out.String())
	}

	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = rdb.Close() }()
	if left, err := rdb.Keys(t.Context(), "cache-example:*").Result(); err != nil || len(left) > 0 {
		t.Errorf("left %q behind, %v", left, err)
	}
}

// rowOf returns the counts of a way.
func rowOf(t *testing.T, out, name string) (counts [3]int) {
	t.Helper()
	_, row, ok := strings.Cut(out, "\n"+name+" ")
	words := strings.Fields(row)
	if !ok || len(words) < len(counts) {
		t.Fatalf("no row %q in\n%s", name, out)
	}
	for i := range counts {
		n, err := strconv.Atoi(words[i])
		if err != nil {
			t.Fatal(err)
		}
		counts[i] = n
	}
	return counts
}

func TestWhatCannotWorkIsSaid(t *testing.T) {
	for _, tc := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"x"}, 2, `unexpected argument "x"`},
		{[]string{"-reds", "x"}, 2, "not defined"},
		{[]string{"-live", "2ms", "-load", "3ms"}, 2, "-live at least -load"},
		{[]string{"-help"}, 0, "host:port"},
		{[]string{"-redis", "127.0.0.1:1"}, 1, "reach the Redis at 127.0.0.1:1"},
	} {
		var out, errs bytes.Buffer
		if status := run(t.Context(), tc.args, &out, &errs); status != tc.status || !strings.Contains(errs.String(), tc.says) {
			t.Errorf("%q: status %d, said %q", tc.args, status, errs.String())
		}
	}
}
