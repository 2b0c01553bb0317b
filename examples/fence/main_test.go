package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/testservers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// times and tokens differ from run to run.
var varying = regexp.MustCompile(`\d+\.\d+ s|token \d+`)

const story = `10 units in stock. A sells 3 of them, B sells 4: 3 have to be left.

with the lock alone, WHERE:
  #  A has the lock with # and reads 10
  #  B has the lock with # and reads 10
  #  B writes 6
  #  A goes on after a pause that it knows nothing of
  #  A writes 7
  #  A is told that it had lost the lock, too late
  left: 7, and not 3: what B sold is in stock again

with the lock, and a guard that checks its token in the steps that read and write, WHERE:
  #  A has the lock with # and reads 10
  #  B has the lock with # and reads 10
  #  B writes 6
  #  A goes on after a pause that it knows nothing of
  #  A is refused, and begins anew
  #  A has the lock with # and reads 6
  #  A writes 3
  left: 3, as it should be
`

func mustTell(t *testing.T, where string, args ...string) {
	t.Helper()
	var out, errs bytes.Buffer
	if status := run(t.Context(), args, &out, &errs); status != 0 {
		t.Fatalf("exit status %d: %s", status, errs.String())
	}
	want := strings.ReplaceAll(story, "WHERE", where)
	if got := varying.ReplaceAllString(out.String(), "#"); got != want {
		t.Errorf("told\n%s\nwant\n%s", got, want)
	}
	if errs.Len() > 0 {
		t.Errorf("complained: %s", errs.String())
	}
}

func TestGuardRefusesTheLateWriteInMemory(t *testing.T) { mustTell(t, "in this process") }

func TestGuardRefusesTheLateWriteInRedis(t *testing.T) {
	addr := testservers.Redis(t).Addr()
	mustTell(t, "in Redis", "-redis", addr)

	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer func() {
		if err := rdb.Close(); err != nil {
			t.Error(err)
		}
	}()
	left, err := rdb.Keys(t.Context(), "fence-example:*").Result()
	if err != nil || len(left) > 0 {
		t.Errorf("left %q behind, %v", left, err)
	}
}

func TestWhatCannotWorkIsSaid(t *testing.T) {
	for _, tc := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"x"}, 2, `unexpected argument "x"`},
		{[]string{"-reds", "x"}, 2, "not defined"},
		{[]string{"-help"}, 0, "host:port"},
		{[]string{"-redis", "127.0.0.1:1"}, 1, "fill the stock in the Redis at 127.0.0.1:1"},
	} {
		var out, errs bytes.Buffer
		if status := run(t.Context(), tc.args, &out, &errs); status != tc.status || !strings.Contains(errs.String(), tc.says) {
			t.Errorf("%q: status %d, said %q", tc.args, status, errs.String())
		}
	}
}
