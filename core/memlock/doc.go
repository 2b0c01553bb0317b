// Package memlock keeps locks in the memory of one process.
//
// It is the driver to begin with, as it needs nothing installed, and the one
// for users' own tests. Engines that share a [Driver] exclude each other like
// processes that share a store; two Drivers know nothing of each other.
//
// # What it promises
//
// Waiting requests of a key are served first come first served, when the key is
// released and when its lease expires; nothing polls. A key that nobody holds
// and nobody waits for takes no memory. What does stay is bounded: the last few
// thousand owners that ended, so that a late request of one of them is refused,
// and expired leases that nobody released, which are swept out as new keys come.
//
// Tokens strictly rise for as long as the Driver lives, also for keys that it
// has forgotten. They start at 1024 times the time in microseconds, so that they rise over
// a restart of the process as well unless its clock went back meanwhile.
//
// # Time
//
// A lease ends at the store when the store's clock says so. That is the
// process's own clock, also the fake one inside a testing/synctest bubble, or
// the one given by [WithClock]. A Driver used in a bubble must not be used
// outside of it.
//
// # Faults
//
// [Driver.Expire], [Driver.Fail] and [Driver.Stall] make the store misbehave,
// for tests of what a program does when its lock is lost or its store is down.
package memlock
