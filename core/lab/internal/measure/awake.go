package measure

import (
	"context"
	"errors"
	"runtime"

	"github.com/lockaround/lockaround/core/internal/child"
)

// Spinner is the role of a process which does nothing but [Spin], see [child.Main].
const Spinner = "spinner"

// KeepAwake keeps the machine's cores from halting while something is measured. On a
// virtual machine a core that has nothing to do takes tens of microseconds to come back,
// longer than a round trip to a server beside it takes: whoever keeps it busier by chance
// looks several times as fast. It starts a process for each core, which uses all time that
// nobody else wants, at the priority that is below all others, until stop is called or this
// process ends.
func KeepAwake() (stop func(), err error) {
	var all []*child.Process
	stop = func() {
		for _, p := range all {
			p.Kill()
		}
	}
	if runtime.GOOS != "linux" {
		return nil, errors.New("only Linux has a priority for what must disturb nobody")
	}
	for range runtime.NumCPU() {
		p, err := child.New(context.Background(), Spinner, nil)
		if err != nil {
			stop()
			return nil, err
		}
		all = append(all, p)
		if _, err := p.Out.ReadString('\n'); err != nil {
			err = errors.Join(err, p.Wait())
			stop()
			return nil, err
		}
	}
	return stop, nil
}
