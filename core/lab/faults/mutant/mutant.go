// Package mutant has bugs for the laboratory to catch: what a lock library could get wrong
// between its engine and its store, put around a driver that does not.
package mutant

import (
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
)

// Mutant is one bug.
type Mutant struct {
	Name   string
	Bug    string   // what it does
	Faults []string // under which it shows; none if it shows without
	Breaks []string // the properties, one of which the laboratory must find broken
	Redis  bool     // its bug is in what only Redis has

	wrap  func(driver.Session, redis.UniversalClient) driver.Session // nil if it is not in the driver
	token func(int64) int64                                          // as callers see it; nil if they see the true one
}

// All are the mutants.
var All = []Mutant{
	{
		Name: "late-deadline", Bug: "a lease counts from the store's reply instead of before the request",
		Faults: []string{"slow-then-cut"}, Breaks: []string{"S1"},
		wrap: func(s driver.Session, _ redis.UniversalClient) driver.Session { return lateDeadline{s} },
	},
	{
		Name: "blind-release", Bug: "a release deletes the lock without comparing its owner",
		Faults: []string{"pause"}, Breaks: []string{"S1"}, Redis: true,
		wrap: func(s driver.Session, c redis.UniversalClient) driver.Session { return blindRelease{s, c} },
	},
	{
		Name: "shared-token", Bug: "callers who hand a lease on among themselves share its token",
		Breaks: []string{"S2"}, token: func(t int64) int64 { return t &^ (handOffs - 1) },
	},
	{
		Name: "kept-token", Bug: "a grant in exchange for a lease keeps the lease's token, although others held between",
		Breaks: []string{"S2"},
		wrap:   func(s driver.Session, _ redis.UniversalClient) driver.Session { return keptToken{s} },
	},
	{
		Name: "undead-renewal", Bug: "a lease is renewed after its release",
		Breaks: []string{"L4"},
		wrap:   func(s driver.Session, _ redis.UniversalClient) driver.Session { return undeadRenewal{s} },
	},
	{
		Name: "lost-wake-up", Bug: "a process that has lost its subscription hears of no grant any more, and does not look for itself",
		Breaks: []string{"L1"},
		wrap:   func(s driver.Session, _ redis.UniversalClient) driver.Session { return &lostWakeUp{Session: s} },
	},
	{
		Name: "open-to-all", Bug: "a lock that cannot be asked for counts as granted",
		Faults: []string{"reset", "no-replies"}, Breaks: []string{"S1", "S2"},
		wrap: func(s driver.Session, _ redis.UniversalClient) driver.Session { return &openToAll{Session: s} },
	},
	{
		Name: "deaf-to-loss", Bug: "a holder goes on when the store says that its lease has gone",
		Faults: []string{"flush"}, Breaks: []string{"S1"},
		wrap: func(s driver.Session, _ redis.UniversalClient) driver.Session { return deafToLoss{s} },
	},
}

// handOffs is how many callers in turn share one grant of the store, each with a token of
// its own: the engine's block.
const handOffs = 1024

// Named returns a mutant.
func Named(name string) (m Mutant, found bool) {
	i := slices.IndexFunc(All, func(m Mutant) bool { return m.Name == name })
	if i < 0 {
		return m, false
	}
	return All[i], true
}

// Token is what callers see of a lease's token.
func (m Mutant) Token(t int64) int64 {
	if m.token == nil {
		return t
	}
	return m.token(t)
}

// Wrap puts the bug around a driver of locks in c, which is nil unless the store is Redis.
func (m Mutant) Wrap(d driver.Driver, c redis.UniversalClient) driver.Driver {
	if m.wrap == nil {
		return d
	}
	return mutated{d, m, c}
}

type mutated struct {
	driver.Driver
	mutant Mutant
	client redis.UniversalClient
}

func (d mutated) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	if err != nil {
		return nil, err
	}
	return d.mutant.wrap(s, d.client), nil
}
