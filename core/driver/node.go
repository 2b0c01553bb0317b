package driver

import "time"

// Node is one server of a store that has several, as it was last seen. A node that was
// not asked for a while may have changed since.
type Node struct {
	Addr      string // without credentials
	Condition Condition
	Since     time.Time     // when it came to be so; zero while NodeUnknown
	Took      time.Duration // of its last answer; 0 if there was none
}

// Condition is what a node was last seen to be.
type Condition uint8

const (
	// NodeUnknown says that the node has not been asked yet.
	NodeUnknown Condition = iota
	// NodeUp says that the node answers.
	NodeUp
	// NodeSlow says that its last answer took more than half of the time it was given,
	// or that it has missed up to two in a row.
	NodeSlow
	// NodeDown says that it cannot be connected to, refuses, or has missed more.
	NodeDown
	// NodeRestartedEmpty says that it answers, and lost its data less than the largest
	// TTL ago that was asked for: leases that it had voted for may still run.
	NodeRestartedEmpty
)

// String returns the name of the condition as used in telemetry.
func (c Condition) String() string {
	switch c {
	case NodeUp:
		return "up"
	case NodeSlow:
		return "slow"
	case NodeDown:
		return "down"
	case NodeRestartedEmpty:
		return "restarted_empty"
	}
	return "unknown"
}
