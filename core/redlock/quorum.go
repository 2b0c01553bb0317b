package redlock

import (
	"errors"
	"fmt"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// majority is the smallest number of n nodes of which any two sets have one in common.
func majority(n int) int { return n/2 + 1 }

// tally counts the nodes' replies about one lease.
type tally struct {
	yes          int // nodes that have ended or renewed it
	endedEarlier int // nodes without it that may have ended it by an earlier copy of the request
	answered     int
	waiting      bool // others wait for the key
	errs         []error
}

// NoMajorityError says that too few nodes answered for a majority, so that the store
// counts as unreachable.
type NoMajorityError struct {
	Nodes    int // of the driver
	Answered int // of them
	Err      error
}

func (e *NoMajorityError) Error() string {
	return fmt.Sprintf("redlock: %d of %d nodes answered, and %d are needed: %v", e.Answered, e.Nodes, majority(e.Nodes), e.Err)
}

// Unwrap returns the errors of the nodes that did not answer.
func (e *NoMajorityError) Unwrap() error { return e.Err }

// noMajority returns a NoMajorityError, as a permanent error if the permanent errors leave
// no majority.
func noMajority(n, answered int, errs []error) error {
	permanent := 0
	for _, err := range errs {
		if kit.Refused(err) {
			permanent++
		}
	}
	err := &NoMajorityError{Nodes: n, Answered: answered, Err: errors.Join(errs...)}
	if n-permanent < majority(n) {
		return &driver.PermanentError{Err: err}
	}
	return err
}
