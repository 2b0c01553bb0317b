package redisfence

import (
	"fmt"
	"time"
)

// Option changes how the numbers are kept. What uses the same lock keys needs the same
// options.
type Option func(*config)

type config struct {
	key    func(lockKey string) string
	expiry time.Duration // 0: never
}

func newConfig(o []Option) config {
	c := config{key: Key}
	for _, option := range o {
		if option != nil {
			option(&c)
		}
	}
	return c
}

// Key returns under which key of Redis the number of a lock key is kept unless
// [WithKey] says otherwise: "fence:{" + lockKey + "}". In a Cluster the braces make the
// lock key its hash tag.
func Key(lockKey string) string { return "fence:{" + lockKey + "}" }

// WithKey replaces [Key]. key has to give different lock keys different keys of Redis,
// which nothing else writes. Several programs that share a Redis, or namespaces of
// locks, need a prefix each. Nil means [Key].
func WithKey(key func(lockKey string) string) Option {
	return func(c *config) {
		c.key = key
		if key == nil {
			c.key = Key
		}
	}
}

// WithExpiry has a number forgotten that long after the last token of its key was
// admitted. The default is never; the package comment says what is at risk. Less than
// a millisecond panics where the option is used.
func WithExpiry(d time.Duration) Option {
	return func(c *config) {
		if d < time.Millisecond {
			panic(fmt.Errorf("redisfence: WithExpiry(%v): use at least a millisecond, and rather days; leave the option out for never", d))
		}
		c.expiry = d
	}
}
