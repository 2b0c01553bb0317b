// Package contest is what the commands have in common that compare one thing with others.
package contest

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/lockaround/lockaround/core/lab/internal/measure"
)

// Run reads the command line, which may say -awake besides a command's own flags, runs the
// command until it is interrupted, and ends this process if that fails.
func Run(command func(ctx context.Context, awake bool) error) {
	log.SetFlags(log.Ltime)
	busy := flag.Bool("awake", false, "keep the cores from halting, by processes of the lowest priority")
	flag.Parse()
	if *busy {
		stop, err := measure.KeepAwake()
		if err != nil {
			log.Fatal("-awake: ", err)
		}
		defer stop()
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := command(ctx, *busy); err != nil {
		log.Print(err)
		cancel()
		os.Exit(1)
	}
}

// Choose returns those whose names match a flag's regular expression, all if it is empty.
func Choose[T any](flag, pattern, what string, all []T, name func(T) string) ([]T, error) {
	p, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("-%s: %w", flag, err)
	}
	var names []string
	chosen := slices.DeleteFunc(slices.Clone(all), func(one T) bool {
		names = append(names, name(one))
		return !p.MatchString(name(one))
	})
	if len(chosen) == 0 && pattern != "" {
		return nil, fmt.Errorf("-%s %q: there is no such %s; there are %s", flag, pattern, what, strings.Join(names, ", "))
	}
	return chosen, nil
}

// Machine is what a command runs on.
func Machine(awake bool) string {
	m := fmt.Sprintf("%d cores, %s/%s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	if awake {
		m += ", cores kept awake"
	}
	return m
}

// Versions are the releases that this program was built with, by module; none in a test.
func Versions() map[string]string {
	found := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Replace == nil && strings.HasPrefix(m.Version, "v") && m.Version != "v0.0.0" {
				found[m.Path] = m.Version
			}
		}
	}
	return found
}
