// Command pipeline compares ways to send small Redis scripts for many goroutines of one
// process: one by one, by the pipelining that client libraries offer, and by batchers
// like that of core/redislock in their smallest form:
//
//	go run ./core/lab/pipeline -awake -out core/lab/pipeline/README.md
//
// It needs redis-server, which it starts itself. Each goroutine runs a script on a key of
// its own, waits for the reply and runs the next. The ways are interleaved, so that what
// else the machine does hits all of them.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/lab/internal/awake"
	"github.com/lockaround/lockaround/core/lab/internal/contest"
)

func main() {
	child.Main(child.Roles{awake.Role: awake.Spin})
	out := flag.String("out", "", "file for the tables, instead of the standard output")
	rounds := flag.Int("rounds", 5, "how often each way is measured")
	watch := flag.Duration("time", 400*time.Millisecond, "how long each time, after a fourth of it to warm up")
	callers := flag.String("callers", "1,2,4,8,16,64,256", "numbers of goroutines")
	only := flag.String("only", "", "regular expression of `ways` to measure")
	contest.Run(func(ctx context.Context, _ bool) error {
		return compare(ctx, *out, *only, *callers, *rounds, *watch)
	})
}

func compare(ctx context.Context, out, only, callers string, rounds int, watch time.Duration) error {
	p := plan{Rounds: rounds, Watch: watch, Progress: log.Printf}
	for text := range strings.SplitSeq(callers, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-callers %q: %q is no number of goroutines", callers, text)
		}
		p.Callers = append(p.Callers, n)
	}
	pattern, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	for _, w := range ways {
		if pattern.MatchString(w.name) {
			p.Ways = append(p.Ways, w)
		}
	}
	if rounds < 1 || watch <= 0 || len(p.Ways) == 0 {
		return fmt.Errorf("-rounds %d, -time %v, -only %q: there is nothing to measure", rounds, watch, only)
	}
	results, err := p.run(ctx)
	if err != nil {
		return err
	}
	if out == "" {
		_, err = os.Stdout.WriteString(results.markdown())
		return err
	}
	return os.WriteFile(out, []byte(results.markdown()), 0o644)
}
