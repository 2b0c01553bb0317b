//go:build !unix

package child

import "os"

// unknown is a signal that this system does not have: sending it is an error.
type unknown string

func (u unknown) String() string { return string(u) }
func (unknown) Signal()          {}

const (
	stop = unknown("SIGSTOP")
	cont = unknown("SIGCONT")
)

var kill = os.Kill
