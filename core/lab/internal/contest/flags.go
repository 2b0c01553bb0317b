package contest

import (
	"errors"
	"flag"
	"fmt"
)

// Flags are those that each command has.
type Flags struct {
	Out, Only, Peers string
	Rounds           int
	Seed             uint64
}

// NewFlags defines the flags of the command line. rounds is how many there are if it does not say.
func NewFlags(rounds int) *Flags {
	f := new(Flags)
	flag.StringVar(&f.Out, "out", "", "folder for the results, made if it is missing (required)")
	flag.IntVar(&f.Rounds, "rounds", rounds, "how many trials each peer has of each scenario")
	flag.StringVar(&f.Only, "only", "", "regular expression of `scenarios` to run")
	flag.StringVar(&f.Peers, "peers", "", "regular expression of `peers` that take part")
	flag.Uint64Var(&f.Seed, "seed", 1, "decides the order of the peers in each round")
	return f
}

// Check returns what is wrong with where the results go and how many rounds there are.
func Check(out string, rounds int) error {
	if out == "" {
		return errors.New("where do the results go? say -out DIR")
	}
	if rounds < 1 {
		return fmt.Errorf("-rounds %d: must be at least 1", rounds)
	}
	return nil
}
