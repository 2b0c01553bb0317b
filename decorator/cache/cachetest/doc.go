// Package cachetest is the conformance suite for the stores of package cache, this module's
// own and anybody else's.
//
//	func TestConformance(t *testing.T) {
//		cachetest.Run(t, func(t *testing.T) *cachetest.Harness {
//			server := startServer(t) // stopped by t.Cleanup
//			return &cachetest.Harness{
//				Store:  mycache.New(server.Addr()),
//				Peer:   mycache.New(server.Addr()),
//				Forget: server.Restart,
//			}
//		})
//	}
//
// Store alone is enough to begin with. Each check is a subtest named after the promise
// it tests; go test -v shows what was skipped, and what it needs. The keys are random,
// so that harnesses may share a server, except those with Forget.
//
// Where something must have ended, the suite waits for its ttl and no longer; where
// something must stand, its ttl is an hour, or the clock says that it must. So no check
// fails because a machine is slow. Two thirds of the time it checks random steps
// against a model, and random loads and invalidations against a source.
//
// The suite is itself tested: a small correct store passes, and with one of some thirty
// mistakes switched on it fails the checks that are meant to notice. See broken_test.go.
//
// # Files
//
// harness.go has what a store fills in, and what all checks use. entries.go checks values, claims and
// lifetimes; model.go lost replies, random steps, and random loads.
package cachetest
