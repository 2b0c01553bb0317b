package decorator_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/lockaround/lockaround/decorator"
)

func TestCommitIsUnknownUnlessTheDatabaseRefused(t *testing.T) {
	for _, c := range []struct {
		err     error
		unknown bool
	}{
		{sqlState("23505"), false}, // unique_violation of a constraint that is checked at the end
		{sqlState("40001"), false}, // serialization_failure
		{fmt.Errorf("wrapped: %w", sqlState("40P01")), false},
		{sqlState("40003"), true}, // statement_completion_unknown
		{sqlState("08006"), true}, // connection_failure
		{sqlState("57P01"), true}, // admin_shutdown
		{sqlState(""), true},
		{context.DeadlineExceeded, true},
		{errors.New("unexpected EOF"), true},
	} {
		err := decorator.CommitError(c.err)
		if !errors.Is(err, c.err) || errors.Is(err, decorator.ErrCommitUnknown) != c.unknown {
			t.Errorf("%v becomes %v; want it to be unknown: %v", c.err, err, c.unknown)
		}
	}
	if err := decorator.CommitError(nil); err != nil {
		t.Errorf("no error becomes %v", err)
	}
}

func ExampleCommitError() {
	for _, err := range []error{nil, sqlState("40001"), errors.New("unexpected EOF")} {
		err := decorator.CommitError(err) // of tx.Commit(ctx)
		fmt.Println(errors.Is(err, decorator.ErrCommitUnknown), err)
	}
	// Output:
	// false <nil>
	// false decorator: commit: SQLSTATE 40001
	// true decorator: outcome of the commit is unknown: unexpected EOF
}
