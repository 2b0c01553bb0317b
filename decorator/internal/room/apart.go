package room

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// Apart runs do, which calls what a program has handed in, on a goroutine of its own, and returns
// when that has ended. A panic and a Goexit are errors, of a *fault.
func Apart(do func() error) (err error) {
	err = &fault{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer Rescue(&err)
		err = do()
	}()
	<-done
	return err
}

// Rescue is deferred where what a program has handed in is called on a goroutine that others
// depend on: a panic is an error.
func Rescue(err *error) {
	if p := recover(); p != nil {
		*err = &fault{panicked: p, stack: debug.Stack()}
	}
}

// fault is how a call has ended that did not return.
type fault struct {
	panicked any // nil: it ended its goroutine
	stack    []byte
}

func (f *fault) Error() string {
	if f.panicked == nil {
		return "has ended its goroutine"
	}
	return fmt.Sprintf("panicked: %v\n%s", f.panicked, f.stack)
}

// FaultOf says whose fault it is, if err is one.
func FaultOf(what string, err error) error {
	if f, ok := err.(*fault); ok { //nolint:errorlint // an error of the program's is none
		return errors.New("the " + what + " " + f.Error())
	}
	return err
}
