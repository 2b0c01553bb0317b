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
// # Tests of your own code
//
// A test takes this driver in place of the one in production, and leaves the rest of the
// program as it is. Three calls make the store misbehave:
//
//	store.Expire("shop/stock:book") // ends the leases of a key: namespace, slash, rendered key
//	store.Fail(err)                 // every call fails with err, until Heal
//	store.Stall()                   // no call is answered, until Heal
//
// After Expire the guarded call's context is cancelled with the cause core.ErrLost, before
// Expire returns. A handler that checks context.Cause before it writes then writes nothing.
// After Fail, or Stall, an acquisition is a core.ErrUnavailable when its Wait is over; without
// a Wait at once, or after the engine's store time-out. Leases end at their deadlines.
//
// In a bubble of testing/synctest, seconds pass at once. Make the Driver in it:
//
//	func TestBuyerIsToldWhenTheStoreIsSilent(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			store := memlock.New()
//			locks, err := core.New(store, core.WithNamespace("shop"))
//			if err != nil {
//				t.Fatal(err)
//			}
//			defer locks.Close()
//			routes := newRoutes(locks) // the program's own
//
//			store.Stall()
//			w := httptest.NewRecorder()
//			routes.ServeHTTP(w, httptest.NewRequest("POST", "/products/book/deduct", nil))
//			if w.Code != http.StatusServiceUnavailable {
//				t.Errorf("status %d, want 503", w.Code)
//			}
//		})
//	}
//
// example_handler_test.go has all three cases, handler_test.go more with synctest. Outside of a
// synctest bubble a store that fails takes as long as the policy's Wait, since it may come back. Several
// engines on one Driver stand for several replicas. To see whether a route acts on
// anything but what it locks, use package core/surfacetest.
//
// # Files
//
// In the order in which a call passes them:
//
//	memlock.go  what a program makes: the Driver and its Clock; and what engines tell each other
//	session.go  the calls of a session, and what it reports to its engine
//	shard.go    a lock: who holds it, who waits, and who has ended; and the shard that it is in
//	faults.go   Fail, Stall, Heal and Expire
package memlock
