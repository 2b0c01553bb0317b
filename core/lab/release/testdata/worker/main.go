// Worker takes locks in a store until a witness tells it to stop. It uses exported API only, of
// the release that it is built with and of the one before. It is built with the file of
// its store, which opens that.
//
//	worker VERSION STORE WITNESS NAMESPACE
//
// Each caller has a connection to the witness, which answers each line: "hello" says who the
// caller is, "ask" comes before an acquisition, "enter" after its grant, "lower" before a
// downgrade, and "leave" before the release. "fail" says what went wrong.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"

	"github.com/lockaround/lockaround/core"
)

// use is what some callers of each process do with a key.
type use struct {
	callers int
	policy  core.Policy
	hold    time.Duration // at most
	lower   bool          // becomes a reader in between
}

const ttl = 5 * time.Second // so long that no holder is ever so late with its renewal

var uses = []use{
	{2, core.Policy{Key: "exclusive"}, 4 * time.Millisecond, false},
	{2, core.Policy{Key: "strict", Fairness: core.Strict}, 4 * time.Millisecond, false},
	{2, core.Policy{Key: "sent", Release: core.Sent}, 4 * time.Millisecond, false},
	{2, core.Policy{Key: "norenew", NoRenew: true}, 4 * time.Millisecond, false},
	{1, core.Policy{Key: "linger", Linger: 100 * time.Millisecond}, 4 * time.Millisecond, false},
	{1, core.Policy{Key: "kept", MinHold: 10 * time.Millisecond}, 4 * time.Millisecond, false},
	{1, core.Policy{Key: "renewed"}, ttl / 2, false},
	{1, core.Policy{Key: "shared"}, 4 * time.Millisecond, true},
	{2, core.Policy{Key: "shared", Mode: core.Shared}, 4 * time.Millisecond, false},
	{2, core.Policy{Key: "semaphore", Mode: core.Semaphore, Limit: 2}, 4 * time.Millisecond, false},
}

func main() {
	if err := work(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

func work(version, store, witness, namespace string) error {
	driver, closeClient, err := open(store)
	if err != nil {
		return err
	}
	locks, err := core.New(driver, core.WithNamespace(namespace), core.WithStoreTimeout(20*time.Second), core.WithTracerProvider(tracer{}))
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	can := driver.Capabilities()
	for _, u := range uses {
		if !slices.Contains(can.Modes, u.policy.Mode) || u.lower && len(can.Modes) == 1 || u.policy.Fairness == core.Strict && !can.Strict {
			continue
		}
		u.policy.TTL, u.policy.Wait = ttl, time.Minute
		for range u.callers {
			conn, err := net.Dial("tcp", witness)
			if err != nil {
				return err
			}
			c := &caller{conn: conn, answers: bufio.NewReader(conn)}
			running.Go(func() {
				c.say("hello", version, u.policy.Key, u.policy.Mode, max(1, u.policy.Limit))
				if err := c.run(locks, u); err != nil {
					c.say("fail", strings.ReplaceAll(err.Error(), "\n", " "))
				}
			})
		}
	}
	running.Wait()
	if err := locks.Close(); err != nil {
		return err
	}
	return closeClient()
}

// tracer makes spans that are sampled and record nothing. Their traces begin with the ID of
// the process, so that it can be told whose they are.
type tracer struct{ embedded.TracerProvider }

func (tracer) Tracer(string, ...trace.TracerOption) trace.Tracer { return starter{} }

type starter struct{ embedded.Tracer }

func (starter) Start(ctx context.Context, _ string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	c := trace.SpanContextConfig{TraceFlags: trace.FlagsSampled}
	binary.BigEndian.PutUint64(c.TraceID[:], uint64(os.Getpid()))
	binary.BigEndian.PutUint64(c.TraceID[8:], rand.Uint64())
	binary.BigEndian.PutUint64(c.SpanID[:], rand.Uint64())
	ctx = trace.ContextWithSpanContext(ctx, trace.NewSpanContext(c))
	return ctx, trace.SpanFromContext(ctx)
}

type caller struct {
	conn    net.Conn
	answers *bufio.Reader
}

// say tells the witness something, and reports whether it wants more.
func (c *caller) say(words ...any) (more bool) {
	if _, err := fmt.Fprintln(c.conn, words...); err != nil {
		return false
	}
	answer, err := c.answers.ReadString('\n')
	return err == nil && answer == "ok\n"
}

func (c *caller) run(locks *core.Engine, u use) error {
	ctx := context.Background()
	for c.say("ask") {
		lease, err := locks.Acquire(ctx, u.policy)
		if err != nil {
			return fmt.Errorf("acquire: %w", err)
		}
		c.say("enter", lease.Token())
		pause(u.hold)
		if u.lower {
			c.say("lower")
			if err := lease.Downgrade(ctx); err != nil {
				return fmt.Errorf("downgrade: %w", err)
			}
			pause(u.hold)
		}
		if err := lease.Err(); err != nil {
			return fmt.Errorf("hold: %w", err)
		}
		c.say("leave")
		if err := lease.Release(ctx); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		pause(10 * time.Millisecond)
	}
	return nil
}

func pause(most time.Duration) { time.Sleep(most/2 + rand.N(most/2)) }
