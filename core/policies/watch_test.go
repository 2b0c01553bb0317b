package policies_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/policies"
)

// watched is an engine whose overrides are those of a file.
type watched struct {
	t     *testing.T
	path  string
	locks *core.Engine
	guard *core.Guard[string]
	log   *bytes.Buffer
}

const interval = time.Second

func watch(t *testing.T, path string) *watched {
	t.Helper()
	w := &watched{t: t, path: path, log: new(bytes.Buffer)}
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"), core.WithOverrides(map[string]core.Override{}),
		core.WithLogger(slog.New(slog.NewTextHandler(w.log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	w.locks = locks
	if w.guard, err = core.NewGuard(locks, core.Policy{Name: "stock", Key: "stock:{.}", MinHold: time.Second}, core.Fields[string]()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- policies.Watch(ctx, locks, path, interval) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, locks.Close()); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return w
}

// after lets intervals pass.
func (w *watched) after(intervals int) {
	time.Sleep(time.Duration(intervals) * interval)
	synctest.Wait()
}

// waits fails the test unless the policy has that Wait.
func (w *watched) waits(want time.Duration) {
	w.t.Helper()
	if got := w.guard.Policy().Wait; got != want {
		w.t.Errorf("Wait is %v, want %v; the log has\n%s", got, want, w.log)
	}
}

// says fails the test unless the log has so many lines with the text, and empties it.
func (w *watched) says(times int, text string) {
	w.t.Helper()
	if got := strings.Count(w.log.String(), text); got != times {
		w.t.Errorf("%d times %q, want %d:\n%s", got, text, times, w.log)
	}
	w.log.Reset()
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func waiting(d string) string { return "policies:\n  stock: {wait: " + d + "}\n" }

func TestChangedFileIsTakenHoweverItWasChanged(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, path, text string){
		"written in place": put,
		"renamed over, with the time and the size of the one before": func(t *testing.T, path, text string) {
			before, err := os.Stat(path)
			put(t, path+".new", text)
			if err = errors.Join(err, os.Chtimes(path+".new", time.Time{}, before.ModTime()), os.Rename(path+".new", path)); err != nil {
				t.Fatal(err)
			}
		},
		"of a ConfigMap": func(t *testing.T, path, text string) {
			// The file is a link into ..data, which is a link that is replaced.
			dir := filepath.Dir(path)
			version, err := os.MkdirTemp(dir, "..v")
			if err != nil {
				t.Fatal(err)
			}
			put(t, filepath.Join(version, "locks.yaml"), text)
			if err := os.Symlink(filepath.Base(version), filepath.Join(dir, "..tmp")); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
				t.Fatal(err)
			}
			if link, err := os.Readlink(path); err != nil || link != "..data/locks.yaml" {
				_ = os.Remove(path)
				if err := os.Symlink("..data/locks.yaml", path); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "locks.yaml")
			put(t, path, waiting("1s"))
			synctest.Test(t, func(t *testing.T) {
				w := watch(t, path)
				w.after(1)
				w.waits(time.Second)
				for _, wait := range []time.Duration{2 * time.Second, 3 * time.Second} {
					change(t, path, waiting(wait.String()))
					w.after(2)
					w.waits(wait)
				}
				w.after(10)
				w.says(3, "were taken")
			})
		})
	}
}

func TestFileThatIsBeingWrittenIsNotTakenYet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.yaml")
	put(t, path, waiting("1s"))
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, path)
		w.after(1)
		for _, half := range []string{"policies: {}\n", "policies:\n  stock: {}\n", "policies:\n  stock: {wait: 2"} {
			put(t, path, half)
			w.after(1)
			w.waits(time.Second)
		}
		put(t, path, waiting("2s"))
		w.after(2)
		w.waits(2 * time.Second)
		w.says(0, "not taken")
	})
}

func TestBadFileKeepsWhatWasAndIsLoggedOnceWithItsPlaces(t *testing.T) {
	for name, tc := range map[string]struct{ text, says string }{
		"malformed":                    {"policies:\n  stock: {wiat: 2s}\n", `locks.yaml:2:11: a policy has no field \"wiat\"; did you mean wait?`},
		"what no policy can have":      {"policies:\n  other: {wait: 2s}\n  stock: {ttl: 1ns}\n", `locks.yaml:3:3: lock override \"stock\": `},
		"what this policy cannot have": {"policies:\n  stock: {max_hold: 1ms}\n", `locks.yaml:2:3: lock compile \"stock\": invalid lock policy: MinHold 1s is longer than MaxHold 1ms; make MinHold shorter, or MaxHold longer`},
		"what takes a restart":         {"policies:\n  stock: {wait: 5s, mode: shared}\n", `locks.yaml:2:3: lock override \"stock\": invalid lock policy: Mode and Limit cannot change`},
		"empty":                        {"", "locks.yaml:1:1: the file is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "locks.yaml")
			put(t, path, waiting("1s"))
			synctest.Test(t, func(t *testing.T) {
				w := watch(t, path)
				w.after(1)
				w.log.Reset()
				put(t, path, tc.text)
				w.after(20)
				w.waits(time.Second)
				if got := strings.Count(w.log.String(), "were refused"); got != 1 {
					t.Errorf("logged %d times", got)
				}
				w.says(1, tc.says)
				put(t, path, waiting("3s"))
				w.after(2)
				w.waits(3 * time.Second)
			})
		})
	}
}

func TestFileThatIsGoneKeepsWhatWas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.yaml")
	put(t, path, waiting("1s"))
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, path)
		w.after(1)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		w.after(5)
		w.waits(time.Second)
		w.says(1, "no such file")
		put(t, path, waiting("2s"))
		w.after(2)
		w.waits(2 * time.Second)
	})
}

func TestNameThatNoPolicyHasIsWarnedOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.yaml")
	put(t, path, "policies:\n  stock: {wait: 1s}\n  stok: {wait: 1s}\n")
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, path)
		w.after(5)
		w.waits(time.Second)
		w.says(1, `locks.yaml:3:3: lock override \"stok\": invalid lock policy: no policy has this name; did you mean \"stock\"?`)
	})
}

func TestWatchedPathThatIsNoRegularFileIsRefusedWithoutReadingIt(t *testing.T) {
	for name, path := range map[string]string{"a directory": t.TempDir(), "a device": os.DevNull} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := watch(t, path)
				w.after(5)
				w.says(1, "it is no regular file")
			})
		})
	}
}

func TestFirstReadingIsNeverActedUpon(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "malformed": "polices: {}\n", "good": waiting("2s")} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "locks.yaml")
			put(t, path, text)
			var log bytes.Buffer
			locks, err := core.New(memlock.New(), core.WithNamespace("shop"), core.WithOverrides(map[string]core.Override{}),
				core.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = locks.Close() }()
			ctx, stop := context.WithCancel(t.Context())
			stop() // it reads once
			if err := policies.Watch(ctx, locks, path, 0); err != nil || log.Len() > 0 {
				t.Errorf("got %v, logged %s", err, &log)
			}
		})
	}
}

func TestWatchThatCannotWorkIsRefused(t *testing.T) {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"), core.WithOverrides(map[string]core.Override{}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close() }()
	without, err := core.New(memlock.New(), core.WithNamespace("shop"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = without.Close() }()
	for name, err := range map[string]error{
		"none":       policies.Watch(t.Context(), without, "locks.yaml", 0),
		"nil engine": policies.Watch(t.Context(), nil, "locks.yaml", 0),
		"no unit":    policies.Watch(t.Context(), locks, "locks.yaml", 10),
		"negative":   policies.Watch(t.Context(), locks, "locks.yaml", -time.Second),
	} {
		if !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), "locks.yaml") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLogSaysWhichPoliciesHaveChangedAndNothingIfNoneHas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.yaml")
	put(t, path, waiting("1s")+"  refund: {ttl: 9s}\n")
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, path)
		w.after(2)
		w.says(1, `changed="refund, stock"`)
		put(t, path, "# the same\n"+waiting("1000ms")+"  refund: {ttl: 9s}\n")
		w.after(3)
		w.says(0, "were taken")
		put(t, path, waiting("2s"))
		w.after(3)
		w.says(1, `changed="refund, stock"`)
		put(t, path, waiting("3s"))
		w.after(3)
		w.says(1, "changed=stock")
	})
}
