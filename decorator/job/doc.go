// Package job runs each tick of a schedule on one of several replicas, under any scheduler.
//
//	report := job.Must(locks, core.Policy{Key: "job:report"}, sendReport,
//		job.Schedule{Every: time.Hour, Skew: 30 * time.Second})
//	crontab.AddFunc("0 * * * *", func() { _ = report.Run(ctx) })
//
// # Ticks
//
// Ticks are times of the clock, the same on every replica: "0 * * * *", in one time zone.
// What counts from the start of its process, such as "@every 1h" or a time.Ticker, ticks
// at times of its own on each replica, and each of them is a tick here.
//
// A call that is late because its process or its machine was paused is like that of a
// replica whose clock is late. One that comes after MinHold runs its tick again, and so
// does one that comes in time when the store's clock has been set forward beyond MinHold.
//
// # How the times hang together
//
// Let the first call of a tick come at 0. The last one comes by Skew and has given up by
// Skew + Wait, so that the key is granted by then, if at all. The first call of the next
// tick comes at Every.
//
//	Skew + Wait < MinHold            nobody asks for the tick any more when the key is free
//	Skew + Wait + MinHold ≤ Every    the key is free when the next tick comes
//	MaxRun + TTL < Wait              with CatchUp: somebody waits when a dead holder's lease ends
//
// A MinHold of half of Every bears the most on both sides, and is what a MinHold of zero
// means; then the first two say Skew + Wait < Every/2. Without CatchUp, Wait is 0. With it,
// a Wait of zero means MaxRun + 2·TTL: the second TTL is for a replica that dies while it
// is the next one in the queue, and for the store to wake the one after it. So a
// tick is over before the next one comes, however late it was caught up. A schedule
// that breaks one of these rules is refused, with its numbers.
//
// # Errors, and runs that take long or hang
//
// A run that returns an error or panics has had the tick, and no other replica runs it:
// what fails here would mostly fail there as well, and what makes one process panic must
// not end them all. Repeat inside the function what is worth it. A panic goes on unchanged
// when the lock has been released.
//
// The context of a run ends at MaxRun, with a cause that is a [context.DeadlineExceeded].
// For as long as the function goes on all the same, its lease is renewed, and ticks that
// come meanwhile are skipped: no two runs are side by side because one is slow. If a
// process that is stuck must not stop the job, set Policy.MaxHold, to MinHold or more. The
// lease is not renewed after it, and a later tick may be run beside what is left of the
// stuck one, with a larger fencing token.
//
// # A replica that dies
//
// A process that dies in a run leaves the key taken until its lease ends, within the TTL.
// Without CatchUp that tick is lost, and so is one that comes before the lease has ended.
// With CatchUp a replica that waits runs the tick. That is certain for one death in a
// tick, at any moment of a run, and goes for more of them as far as each leaves the
// next replica a part of its Wait.
//
// A process that dies when its function is done and the store has not heard of it yet is
// like one that dies in the middle: nobody else knows the difference. So the tick is run
// again, with CatchUp or by a late replica. The end of a run at which the store cannot be
// reached for a TTL, and a store that loses its data, have the same effect. A
// job that cannot bear it notes in one step with its effect that it was done, and fences
// what it writes: [core.LeaseFrom] finds the lease in its context, whose token rises from
// run to run and tells them apart.
//
// # Telemetry
//
// There are metrics with the policy's Name as lock.name: lock.job.runs counts calls by
// lock.outcome, a [Outcome]; lock.job.duration has the seconds that the function ran;
// lock.job.last_success is the Unix time at which this process last ran it without an
// error, and is not there before. The last success of a job is the largest of its
// replicas'. [Runner.Status] says the same to a health check. In the lock's own spans
// and metrics a skipped call is busy, or with CatchUp a timeout.
//
// # The policy
//
// The key is a literal, as a job has no argument. Mode is Exclusive; NoRenew and Linger are
// not set. The driver must be able to keep a key after its release, which ZooKeeper's
// is not.
//
// # Files
//
// job.go has [Must], [New] and [Runner.Run]; schedule.go the times and what they have to fulfil; outcome.go how a tick has ended;
// telemetry.go the metrics.
package job
