// Package counts says how often a test does what it does: a few times beside all others,
// and in full when somebody wants to see a figure. One environment variable says so:
//
//	LOCKAROUND_COUNTS=all                    # everything in full
//	LOCKAROUND_COUNTS=kills=100,reshard=60s  # these as given, the rest a few times
//	LOCKAROUND_COUNTS=all,kills=100          # these as given, the rest in full
package counts

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The environment variables.
const (
	Variable = "LOCKAROUND_COUNTS"
	Seed     = "LOCKAROUND_SEED" // of a simulation's first schedule
)

const everything = "all"

// Full reports whether full counts are asked for.
func Full(t testing.TB) bool {
	t.Helper()
	full, _ := read(t)
	return full
}

// Of returns the number that is given for a name; without one it is few, or all if full counts
// are asked for. Everything but a number from 1 fails the test. What is done only by name has 0
// for both.
func Of(t testing.TB, name string, few, all int) int {
	t.Helper()
	return of(t, name, few, all, "a number from 1", func(text string) (int, bool) {
		n, err := strconv.Atoi(text)
		return n, err == nil && n >= 1
	})
}

// Short returns one number for the tests that a change should pass first, which go test runs with
// -short, and another for all.
func Short(short, other int) int {
	if testing.Short() {
		return short
	}
	return other
}

// Time is Of for how long something goes on.
func Time(t testing.TB, name string, short, long time.Duration) time.Duration {
	t.Helper()
	return of(t, name, short, long, "a duration such as 60s", func(text string) (time.Duration, bool) {
		d, err := time.ParseDuration(text)
		return d, err == nil && d > 0
	})
}

// Seeds returns which schedules a simulation runs: so many from the first seed on, as [Of] says.
// If the environment has a seed they begin there, and few is one.
func Seeds(t testing.TB, name string, first uint64, few, all int) (seed, n uint64) {
	t.Helper()
	if text := os.Getenv(Seed); text != "" {
		var err error
		if first, err = strconv.ParseUint(text, 10, 63); err != nil {
			t.Fatalf("%s is %q; a number from 0 is right", Seed, text)
		}
		few = 1
	}
	return first, uint64(Of(t, name, few, all))
}

// Asks is the environment by which a test's child does something n times, and the rest a few times.
func Asks(name string, n int) string { return fmt.Sprintf("%s=%s=%d", Variable, name, n) }

func of[T any](t testing.TB, name string, few, all T, right string, parse func(string) (T, bool)) T {
	t.Helper()
	full, given := read(t)
	text, ok := given[name]
	switch {
	case ok:
		n, ok := parse(text)
		if !ok {
			t.Fatalf("%s has %s=%s; %s is right", Variable, name, text, right)
		}
		return n
	case full:
		return all
	}
	return few
}

var word = regexp.MustCompile(`^([a-z]+)=([0-9a-zµ.]+)$`)

// read returns what the variable says. A name that no test knows cannot be told from another
// package's.
func read(t testing.TB) (full bool, given map[string]string) {
	t.Helper()
	text := os.Getenv(Variable)
	if text == "" {
		return false, nil
	}
	given = make(map[string]string)
	for one := range strings.SplitSeq(text, ",") {
		switch m := word.FindStringSubmatch(one); {
		case one == everything:
			full = true
		case m == nil:
			t.Fatalf("%s is %q, in which %q is neither %q nor a name and a count; all,kills=100,reshard=60s is right", Variable, text, one, everything)
		case given[m[1]] != "":
			t.Fatalf("%s is %q, which has %s twice", Variable, text, m[1])
		default:
			given[m[1]] = m[2]
		}
	}
	return full, given
}
