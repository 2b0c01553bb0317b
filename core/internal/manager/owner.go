package manager

import (
	"crypto/rand"

	"github.com/lockaround/lockaround/core/driver"
)

// owners draws fresh owners, several at a time: to ask for random bytes takes longer
// than to get them.
type owners struct {
	random [32 * len(driver.Owner{})]byte
	left   int // bytes at the end of random that were not used
}

func (s *owners) newOwner() (o driver.Owner) {
	if s.left == 0 {
		_, _ = rand.Read(s.random[:]) // never fails: crypto/rand ends the program instead
		s.left = len(s.random)
	}
	next := s.random[len(s.random)-s.left:][:len(o)]
	copy(o[:], next)
	clear(next) // who reads the memory later learns no secret that was given out
	s.left -= len(o)
	return o
}
