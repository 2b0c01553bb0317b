package manager

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/signals"
)

// Config is what a manager is made with.
type Config struct {
	Driver       driver.Driver
	Capabilities driver.Capabilities // of Driver
	StoreTimeout time.Duration       // bounds each call of the store
	MaxWaiters   int                 // callers that wait for one key
	MaxHeld      int                 // holds at a time
	TokensAfter  int64               // is added to the store's tokens
	Identity     string              // of the process
	Logger       func() *slog.Logger // is asked at each line

	// Carried returns the fencing token of a key that came with ctx's request, and 0 if none did. Nil is
	// a manager whose requests bring none.
	Carried func(ctx context.Context, key string) int64
}

// Terms are a policy's settings as the manager uses them. All calls of the policy share them, and nothing
// changes them.
type Terms struct {
	Name    string // of the policy, for the log
	Signals *signals.Policy

	Mode  driver.Mode
	Limit int // of a Semaphore; otherwise 0

	Wait    time.Duration // 0 leaves as soon as the key is known to be taken; or Forever
	TTL     time.Duration
	MaxHold time.Duration // 0 is no bound
	MinHold time.Duration
	Linger  time.Duration

	NoRenew bool
	Strict  bool // each caller has a place of its own in the store's queue
	Sent    bool // a release returns before the store has answered
}

const (
	// Forever is a Wait, and a caller's patience, without a bound.
	Forever time.Duration = math.MaxInt64

	// longest is no shorter than any time of a policy but Forever.
	longest = 365 * 24 * time.Hour
)
