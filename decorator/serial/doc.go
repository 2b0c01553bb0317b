// Package serial puts a queue before a function: calls are accepted at once, and those of one key
// run later, one after the other, in order, spaced, with retries, over all processes, whoever dies.
//
//	refunds := serial.Must(locks, core.Policy{Key: "refund:{OrderID}", TTL: 10 * time.Second}, store, svc.Refund,
//		serial.Policy{Spacing: 2 * time.Second, OnDead: serial.Hold})
//	place, err := refunds.Enqueue(ctx, req, serial.ItemID(req.ID)) // a repetition has the same place
//	err = refunds.Work(ctx)                                        // until ctx ends
//
// go run ./examples/extra/refunds shows a provider's limit broken, and then kept.
//
// # What is promised
//
//   - The items of a key run in the order in which their Enqueue returned, also over
//     retries, and one at a time. A worker takes the lock of the key for it, so that no direct call
//     runs meanwhile that takes the same lock: of a route, of another function, by hand.
//   - An item that was accepted runs at least once, or is recorded as dead. It runs more than once if a worker
//     dies, or loses its lease, between an effect and the record of its end. For effects in a
//     database of yours [MustTx] makes that once. Elsewhere, take [RunFrom]'s ID as the
//     idempotency key.
//   - The starts of a key's runs are Spacing apart or more, by the store's clock, also over crashes.
//   - A key that waits, for its spacing, for a retry or for an operator, keeps no other key
//     waiting, and holds no lock meanwhile.
//   - If a worker dies, another one goes on within the policy's TTL, and what its look at the
//     store takes.
//
// Package [github.com/lockaround/lockaround/decorator/queue] says how, and what a crash
// leaves at each step.
//
// # A run
//
// The function runs on a goroutine of its own, with a context that has the lease and the
// values of Work's context. It ends when the lease does, with the cause [core.ErrLost],
// [core.ErrMaxHold] or [core.ErrClosed]; the end of Work's context does not end it. An
// error is a failure: the item runs again after a pause, before the items behind it,
// until its Attempts are used up. Then it is dead, and OnDead says what that means for those behind it. A function
// that returns an [ErrGiveUp] makes its item dead at once. A panic, and a Goexit, are failures, and go to the
// engine's log. So is a payload that cannot be decoded, as after a new release, or whose decoding panics.
//
// A function that never returns keeps its key, as the lease is renewed for it. With a MaxHold the
// context ends then, and the key is free a TTL later: another worker runs the item again,
// beside what is left of the stuck one. The stuck run still counts as one of Workers.
//
// While nobody else waits for the lock, a worker goes on with the next item of the key under the same lease, so that a
// burst costs one round trip for each item. With a Spacing, or a MaxHold, each run has a lease of its own.
//
// # Telemetry
//
// Metrics have the policy's Name as lock.name. Of the queue, as the store has it, and read when
// metrics are collected: lock.queue.length counts items that have not ended, lock.queue.oldest is the age in seconds
// of the oldest of them that is the first of its key, lock.queue.parked counts keys that wait
// for an operator. Of this process: lock.queue.attempts counts runs that were begun,
// lock.queue.runs those that ended, by lock.outcome: done, retry, dead, superseded, or unrecorded
// if the store did not take the record. lock.queue.run.duration has their seconds, and
// lock.queue.dead counts items that have died. A run has a span "serial run" that is linked to the span "serial enqueue" of
// the request that has enqueued it.
//
// # The policy
//
// Mode is Exclusive, Wait is zero or Forever: a worker waits for the lock as long as others
// have it. NoRenew, MinHold, Linger and Reentrant are not set. The driver must issue fencing tokens.
// The queue has the policy's Name: all processes that use it have the same policy and the same rules.
//
// # Files
//
// In the order in which a call passes them: serial.go has [Must], [MustTx], and what they refuse; policy.go how a queue runs;
// enqueue.go what accepts a call, tells of it and resumes it; work.go a worker, which claims keys; run.go the run of an item;
// telemetry.go the spans and the metrics.
package serial
