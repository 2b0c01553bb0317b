// Package twinlock is a driver over two others, for the time in which a service goes
// from one store to another, or from one server to another, without a pause and
// without a moment in which two processes hold the same key.
//
// A lease is one of both stores: it is granted when both have granted it, and over when
// either is. So a process that uses both is excluded by those that use the old store
// alone, by those that use both, and by those that use the new one alone. Those of the
// first and the last kind do not see each other and must not run at the same time:
//
//  1. All processes use the old store.
//  2. Roll out New(old, new). When the last process of step 1 has ended,
//  3. roll out the new store alone. Step 1 must not come back without step 2 between.
//
// # What it promises
//
// Exclusion as far as at least one of the stores that two processes have in common
// keeps it. The old store is always asked first, so that processes never wait for each
// other in a circle. Among those that use both, first come is first served, by the old
// store's queue; one that uses the new store alone may overtake them.
//
// Fencing tokens are the old store's, so that they rise through steps 1 and 2. Through
// step 3 they go on rising if both stores give clock tokens (Redis to Redis, say) and
// their clocks differ by less than a hold takes.
//
// If one of the stores gives the time and the other one counts, as from Redis to etcd, the
// tokens of one are far above those of the other, and guards would keep the holders of step 3
// out, or those of step 2. So choose a time at which step 2 is rolled out everywhere, and
// switch the tokens then:
//
//	switched := time.Date(2026, time.December, 1, 3, 0, 0, 0, time.UTC)
//	core.New(twinlock.New(redis, etcd, twinlock.SwitchTokensAt(switched)), …) // step 2
//	core.New(etcd, core.WithTokensAfter(switched), …)                         // step 3, after that time
//
// From a store that counts to one that gives the time, step 3 needs no WithTokensAfter. A
// process of step 1 that is still there after the switch, or one of step 3 before it, is
// excluded as always, and is refused by guards. Two stores that both count, each in its own
// way, have no such switch: tell the guards to begin anew.
//
// # Cost
//
// Acquisition asks one store after the other, so it takes the round trips of both and
// waits in two queues; renewals and releases ask both at once. While either store is
// down there are no grants, and a hold ends with the first of its two deadlines.
//
// # Files
//
// In the order in which a call passes them:
//
//	driver.go   New, its option, and a session over one of each store
//	acquire.go  Acquire: one store after the other
//	lease.go    Renew and Release: both at once; and what is known of each lease
package twinlock
