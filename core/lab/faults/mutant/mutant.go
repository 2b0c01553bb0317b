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
	Name    string
	Bug     string   // what it does
	Faults  []string // under which it shows; none if it shows without
	Breaks  []string // the properties, one of which the laboratory must find broken
	Only    string   // the store that has what its bug is in; empty for all
	Long    bool     // it shows when others wait for long
	Patient bool     // it shows when nobody comes for a while who does not wait
	Hasty   bool     // a server of a quorum that has lost its data votes at once

	wrap  func(driver.Session, redis.UniversalClient) driver.Session // nil if it is not in the driver
	token func(int64) int64                                          // as callers see it; nil if they see the true one
	keys  func([]string) []string                                    // that are locked of several; nil if all are
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
		Faults: []string{"pause"}, Breaks: []string{"S1"}, Only: "redis",
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
		Breaks: []string{"L1"}, Patient: true,
		wrap: func(s driver.Session, _ redis.UniversalClient) driver.Session { return &lostWakeUp{Session: s} },
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
	{
		Name: "open-to-readers", Bug: "readers do not exclude writers, who do not exclude readers", Breaks: []string{"S1"},
		wrap: func(s driver.Session, _ redis.UniversalClient) driver.Session { return &openToReaders{Session: s} },
	},
	{
		Name: "one-too-many", Bug: "a semaphore lets one more in than it has room for", Breaks: []string{"S1"},
		wrap: func(s driver.Session, _ redis.UniversalClient) driver.Session { return oneTooMany{s} },
	},
	{
		Name: "forgotten-key", Bug: "of several keys that are asked for together the last one is not locked", Breaks: []string{"S1", "S2"},
		keys: func(keys []string) []string { return keys[:len(keys)-1] },
	},
	{
		Name: "short-keep", Bug: "a key that is to stay taken for a while is free when its holder releases it", Breaks: []string{"keep"},
		wrap: func(s driver.Session, _ redis.UniversalClient) driver.Session { return shortKeep{s} },
	},
	{
		Name: "restless", Bug: "who has waited for a while gives up his place, and waits at the end of the queue", Breaks: []string{"turn"}, Long: true,
		wrap: func(s driver.Session, _ redis.UniversalClient) driver.Session { return restless{s} },
	},
	{
		Name: "hasty-return", Bug: "a server of a quorum that has lost its data votes at once", Only: "quorum",
		Faults: []string{"three-empty"}, Breaks: []string{"S1", "S2"}, Hasty: true,
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

// Keys are those of several that are locked.
func (m Mutant) Keys(all []string) []string {
	if m.keys == nil || len(all) == 0 {
		return all
	}
	return m.keys(all)
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
