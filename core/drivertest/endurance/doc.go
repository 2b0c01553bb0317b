// Package endurance counts how often a driver bears what drivertest tests once:
// thousands of lost replies, races, cancelled waits and silences, hundreds of outages.
//
// A driver's tests run it with the harness that they have for drivertest:
//
//	func TestEndurance(t *testing.T) { endurance.Run(t, newHarness) }
//
// Each figure is a subtest that says what must hold and how often it was tried. Those
// that need an ability which the harness lacks are skipped and name it. So that it can
// be part of every run, only about one in a hundred is tried; with [Variable] set to
// all every one is.
//
// A figure that was reached tells so by an attribute of its subtest, which go test -v
// prints:
//
//	=== ATTR  TestEndurance/LostRepliesGrantNothingTwice figure-4 3,000 lost replies: …
//
// # Bounds
//
// The bounds are those of the contract, without anything added for slow code. What is
// added is the machine's: while a figure runs, a goroutine measures when the machine
// stood still, and what of that fell into a wait is taken off it, up to as much again as
// the bound. In a run of all instances nothing else is granted, so that it wants a machine
// that has time. In the small run, which shares the machine with
// other tests, a bound that is missed by less than [drivertest.Slack] does not fail the
// test; it is not told as reached either.
//
// # Files
//
// endurance.go has the list of figures and records what came out; lane.go what they are written with.
// faults.go has stores that fail, pauses.go processes that stand still or are parted, and races.go
// calls that meet.
package endurance
