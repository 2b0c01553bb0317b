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
package queuetest
