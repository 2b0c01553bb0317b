// Package counts says how often a test does what it does: a few times beside all others,
// and in full when somebody wants to see a figure.
package counts

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// Variable is the environment variable that, set to 1, asks for full counts.
const Variable = "LOCKAROUND_FIGURES"

// Full reports whether the environment asks for full counts.
func Full() bool { return os.Getenv(Variable) == "1" }

// Of returns the number in the environment's variable; without one it is few, or all if
// full counts are asked for. Everything but a number from 1 fails the test.
func Of(t testing.TB, variable string, few, all int) int {
	t.Helper()
	return read(t, variable, few, all, "a number from 1", func(text string) (int, bool) {
		n, err := strconv.Atoi(text)
		return n, err == nil && n >= 1
	})
}

// Time is Of for how long something goes on.
func Time(t testing.TB, variable string, short, long time.Duration) time.Duration {
	t.Helper()
	return read(t, variable, short, long, "a duration such as 60s", func(text string) (time.Duration, bool) {
		d, err := time.ParseDuration(text)
		return d, err == nil && d > 0
	})
}

func read[T any](t testing.TB, variable string, few, all T, right string, parse func(string) (T, bool)) T {
	t.Helper()
	text := os.Getenv(variable)
	switch {
	case text != "":
		n, ok := parse(text)
		if !ok {
			t.Fatalf("%s is %q; %s is right", variable, text, right)
		}
		return n
	case Full():
		return all
	}
	return few
}
