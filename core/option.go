package core

import (
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Option configures an [Engine]. A nil Option is ignored.
type Option interface{ apply(*settings) }

type settings struct {
	namespace  string
	timeout    time.Duration
	tracers    trace.TracerProvider
	meters     metric.MeterProvider
	logger     *slog.Logger
	logs       *logs
	maxWaiters int
	maxHeld    int
	force      bool
	identity   *string // nil: the default
	configured map[string]Override
	loggedKeys bool
	defaults   Defaults

	tokensAfter int64 // is added to the store's tokens
}

// maxTokensAfter is the beginning of the year 2200, in microseconds: what tokens are made of
// stays below 2^53.
const maxTokensAfter = 7_258_118_400_000_000

type optionFunc func(*settings)

func (f optionFunc) apply(s *settings) { f(s) }

// WithNamespace keeps the keys of this engine apart from those of other
// applications and environments in the same store, for example "shop:prod".
// Engines exclude each other only within one namespace. The store sees the key
// after the namespace and a slash, which a namespace cannot contain. The default
// is empty, which logs a warning.
func WithNamespace(namespace string) Option {
	return optionFunc(func(s *settings) { s.namespace = namespace })
}

// WithStoreTimeout bounds each attempt to reach the store, and with it a call
// whose policy does not wait. The default is 3 s; it must be a millisecond or more.
func WithStoreTimeout(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.timeout = d })
}

// WithTracerProvider sets where spans go. The default, and nil, is
// OpenTelemetry's global provider.
func WithTracerProvider(p trace.TracerProvider) Option {
	return optionFunc(func(s *settings) { s.tracers = p })
}

// WithMeterProvider sets where metrics go. The default, and nil, is
// OpenTelemetry's global provider.
func WithMeterProvider(p metric.MeterProvider) Option {
	return optionFunc(func(s *settings) { s.meters = p })
}

// WithIdentity sets what operators call this process, such as a pod's name. It is stored with
// each lease, for [Engine.Inspect], for the log of calls that did not get their lock, and for
// the spans of those that waited:
//
//	locks, err := core.New(redislock.New(rdb), core.WithIdentity(os.Getenv("POD_NAME")))
//
// It has 1 to 64 bytes: ASCII letters, digits and . _ - : / @ + = , # ~ and %. New refuses
// others, and drivers that cannot store it. Whoever may read the store can read it, so that it
// is no place for a secret, and nothing is decided by it: two processes may have the same. It
// is never told to a client. The default is the host's name, a colon and the process's ID.
func WithIdentity(identity string) Option {
	return optionFunc(func(s *settings) { s.identity = &identity })
}

// WithLogger sets where the engine, and the middleware, the interceptors and the caches that
// use it, say what an operator must know. At the level of debugging the engine says of each
// call that found its key taken who holds it. The default, and nil, is slog.Default at the time
// of logging.
//
// A handler that panics or ends its goroutine loses the line and nothing else. Whoever logs
// waits 100 ms for it at most, and for none while one is late; with 64 lines that are late more
// are left out, and the next one says how many. [Engine.Close] waits for them for 3 s.
func WithLogger(l *slog.Logger) Option {
	return optionFunc(func(s *settings) { s.logger = l })
}

// WithLoggedKeys lets the log name the key of a lock that was lost, that was held for too long, or
// that was released by force. The default is not to: keys often have the numbers of customers in
// them, and a log may have more readers than the store.
func WithLoggedKeys() Option {
	return optionFunc(func(s *settings) { s.loggedKeys = true })
}

// WithMaxWaiters bounds how many callers of this process wait for one key; one
// more is ErrBusy at once. The default is 10,000; it must be positive.
func WithMaxWaiters(n int) Option {
	return optionFunc(func(s *settings) { s.maxWaiters = n })
}

// WithMaxHeld bounds how many leases this engine holds at a time; with that many
// held, a further acquisition is ErrUnavailable at once, and one that waits is when its turn
// comes. The default is 100,000; it must be positive.
func WithMaxHeld(n int) Option {
	return optionFunc(func(s *settings) { s.maxHeld = n })
}

// WithTokensAfter adds a time, in microseconds since 1970, to the tokens of the store: for
// one that counts, as etcd and ZooKeeper do, and takes over from one whose tokens are the
// time, such as Redis. All tokens of the old store from before that time are smaller then,
// so that guards go on admitting holders; package twinlock has the steps. Every engine of the
// service is made with the same time, and stays so: without it the tokens are small again,
// and refused. It is for drivers with DurableTokens, and a time from 1970 to 2200. The
// default, and the zero time, adds nothing.
func WithTokensAfter(t time.Time) Option {
	return optionFunc(func(s *settings) {
		if !t.IsZero() {
			s.tokensAfter = t.UnixMicro()
		}
	})
}

// WithForceRelease lets [Engine.ForceRelease] and [Engine.ForceReleaseUpTo] take locks from
// their holders, which they refuse otherwise. It is for what an operator uses: a tool, or the
// service that serves the button of package lockpage.
func WithForceRelease() Option {
	return optionFunc(func(s *settings) { s.force = true })
}

// WithOverrides replaces fields of policies by what a configuration says, without a new
// build; package policies reads it from a file. The keys of the map are the names of
// policies: [Policy].Name, or the template of one without. All policies of that name are
// meant, whatever surface or guard they are of. They are changed as they are compiled
// and, if their key is a literal, at each [Engine.Do] and [Engine.Acquire]; then they
// go through the same checks as any policy, whose [ErrPolicy] says which fields are from
// here. Every process that uses a key should have the same Mode and Limit for it.
//
// New refuses an override that no policy could have. Whether every name is that of a
// policy is for [Engine.CheckOverrides] to say. The map is copied: later changes have
// no effect. The default, and nil, is none; of two such options the last one counts. For
// [Engine.ReplaceOverrides] later on, give an empty map if there are none yet.
func WithOverrides(byName map[string]Override) Option {
	byName = maps.Clone(byName)
	return optionFunc(func(s *settings) { s.configured = byName })
}

func newSettings(o []Option) (settings, error) {
	s := settings{logs: new(logs), timeout: 3 * time.Second, maxWaiters: 10_000, maxHeld: 100_000}
	for _, opt := range o {
		if opt != nil {
			opt.apply(&s)
		}
	}
	switch {
	case strings.ContainsRune(s.namespace, '/'):
		return s, fmt.Errorf("%w: WithNamespace(%q): a slash ends the namespace in the store; use another character", ErrPolicy, s.namespace)
	case s.timeout <= 0:
		return s, fmt.Errorf("%w: WithStoreTimeout(%v): must be positive", ErrPolicy, s.timeout)
	case s.timeout < time.Millisecond:
		return s, fmt.Errorf("%w: WithStoreTimeout(%v): no store answers in that time%s", ErrPolicy, s.timeout, withUnit(s.timeout))
	case s.maxWaiters <= 0:
		return s, fmt.Errorf("%w: WithMaxWaiters(%d): must be positive", ErrPolicy, s.maxWaiters)
	case s.tokensAfter < 0 || s.tokensAfter > maxTokensAfter:
		return s, fmt.Errorf("%w: WithTokensAfter(%v): use a time from 1970 to 2200", ErrPolicy, time.UnixMicro(s.tokensAfter).UTC())
	case s.maxHeld <= 0:
		return s, fmt.Errorf("%w: WithMaxHeld(%d): must be positive", ErrPolicy, s.maxHeld)
	}
	return s, nil
}

func (s *settings) meterProvider() metric.MeterProvider {
	if s.meters != nil {
		return s.meters
	}
	return otel.GetMeterProvider()
}

// log returns the logger to use.
func (s *settings) log() *slog.Logger {
	if s.logger != nil {
		return s.logs.guard(s.logger)
	}
	return s.logs.guard(slog.Default())
}

// withUnit is a hint for a duration that was most likely written without its unit: in
// seconds, or in milliseconds.
func withUnit(d time.Duration) string {
	switch {
	case d < 200:
		return fmt.Sprintf("; durations have units, as in %d*time.Second", d.Nanoseconds())
	case d <= time.Minute/time.Millisecond:
		return fmt.Sprintf("; durations have units, as in %d*time.Millisecond", d.Nanoseconds())
	}
	return ""
}
