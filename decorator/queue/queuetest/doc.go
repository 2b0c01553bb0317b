// Package queuetest is the conformance suite for the stores of package queue, this module's
// own and anybody else's.
//
//	func TestConformance(t *testing.T) {
//		queuetest.Run(t, func(t *testing.T) *queuetest.Harness {
//			server := startServer(t) // stopped by t.Cleanup
//			return &queuetest.Harness{
//				Store: myqueue.New(server.Addr()),
//				Peer:  myqueue.New(server.Addr()),
//			}
//		})
//	}
//
// Store alone is enough to begin with. Each check is a subtest named after the promise
// it tests; go test -v shows what was skipped, and what it needs. Queues and keys are random,
// so that harnesses may share a server.
//
// Where something must have ended, the suite waits for its time and no longer; where
// something must stand, its time is an hour. So no check fails because a machine is slow.
//
// The suite is itself tested: with one of some thirty mistakes in it, a correct store fails
// the checks that are meant to notice. See mutants_test.go in package serial.
//
// # Files
//
// harness.go has what a store fills in, and what all checks use. appends.go checks what is appended
// and kept; claims.go who gets a key and when; runs.go the runs of items and their deaths; workload.go
// lost replies, and many workers at a time.
package queuetest
