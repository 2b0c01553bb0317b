package main

import (
	"errors"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/lockgen/testdata/foreign"
	"github.com/lockaround/lockaround/decorator/lockgen/testdata/good/foreigners"
)

func TestAServerThatOthersCannotImplementIsWrapped(t *testing.T) {
	impl := &foreigners.Impl{}
	var next foreign.Server = must(foreigners.NewImplWithLock(newLocks(t), impl))
	request := foreign.Request{SKU: "a", Status: "new"}
	if err := next.Serve(t.Context(), request); err != nil || impl.Served != 1 {
		t.Errorf("served %d, %v", impl.Served, err)
	}
	var outer foreign.Server = must(foreigners.NewServerWithLock(newLocks(t), next))
	if err := outer.Serve(t.Context(), request); err != nil || impl.Served != 2 {
		t.Errorf("served %d, %v", impl.Served, err)
	}
}

func TestAFieldIsReadThroughTypesThatCannotBeWritten(t *testing.T) {
	locks := newLocks(t)
	dig, digBy := must(foreigners.DigLocked(locks)), must(foreigners.DigByLocked(locks))
	for name, request := range map[string]*foreign.Request{"nil": nil, "nil within": {}} {
		if err := dig(t.Context(), request, foreign.Request{}); !errors.Is(err, core.ErrKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := digBy(t.Context(), foreign.Request{}); !errors.Is(err, core.ErrKey) {
		t.Errorf("by value: %v", err)
	}
	full := foreign.NewRequest()
	if err := errors.Join(dig(t.Context(), &full, full), digBy(t.Context(), full)); err != nil {
		t.Error(err)
	}
}
