// Package suites has what the tests of every driver run beside the conformance suite, drivertest.
//
// # Files
//
//	crash.go    the holder of a key is killed, and the next one has it
//	several.go  the same for holders of several keys
//	crowd.go    many callers want few keys, and no two are let in together
//	jumps.go    the store's clock jumps by an hour; history.go has what happens to the keys meanwhile
//	offers.go   what core's errors say that a driver offers
//	bench.go    what a free key, a hand-over and a crash cost
package suites
