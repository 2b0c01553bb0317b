// Package drivertest is the conformance suite for lock drivers, this module's
// own and anybody else's. A driver that passes keeps the contract of package
// driver as far as it can be seen from outside.
//
// A driver's tests run it with a [Harness] for each check:
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, func(t *testing.T) *drivertest.Harness {
//			server := startServer(t)         // stopped by t.Cleanup
//			proxy := startProxy(t, server)   // likewise
//			return &drivertest.Harness{
//				Driver:     mylock.New(proxy.Addr()),
//				Peer:       mylock.New(server.Addr()),
//				Stall:      proxy.Stall,
//				LosePushes: proxy.LosePushes,
//				Restart:    server.Restart,
//			}
//		})
//	}
//
// Driver alone is enough to begin with. Each further ability lets more checks
// run; go test -v shows what was skipped, and which ability it needs. A driver
// should not be trusted before its harness has all that its store can suffer:
// the costly mistakes are those that show when a reply is lost or late.
//
// Every check is a subtest named after the promise it tests, so that one runs
// alone with -run 'TestConformance/LostWakeUpDelaysByAtMostWake'. They use random
// keys, and sessions that stand for processes. The suite tests what a driver's
// Capabilities promise, modes too, and nothing else. Most of the time checks wait, so
// -parallel 16 makes the suite much faster even on a small machine.
//
// # Bounds
//
// Every bound comes from the contract: the end of a context plus 50 ms,
// Capabilities.Wake, MinTTL, or the TTL of a lease. To each the suite adds
// [Slack], for a busy machine, and twenty times what the machine is seen to
// oversleep while the check runs. So a driver that takes too long
// is at fault, and not a slow computer.
//
// # Counts
//
// Package endurance repeats these checks thousands of times, with the same harness, and says how
// often each promise was kept.
//
// # How the suite is itself tested
//
// A small correct driver passes it. Each of a hundred classical mistakes, switched on in
// the same driver, makes the checks fail that are meant to notice it. Every check is failed
// by at least one mistake. See broken_test.go, which is also a list of what to think of when
// writing a driver.
//
// # Files
//
// harness.go has what a driver fills in, and how checks are run; fixture.go and process.go what they
// are written with. basics.go checks what a grant is, its token and its deadline; exclusion.go that a
// key has one holder and keys are apart; waiting.go those who wait; lease.go release, renewal and
// expiry; replace.go what takes a lease's place; modes.go and room.go sharers and semaphores;
// bound.go full queues; identity.go who holds. session.go opens and closes; silence.go has a store that does not answer, or
// refuses; prompt.go calls that are begun and not waited for; optional.go what else a session may do.
package drivertest
