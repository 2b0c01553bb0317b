package cachetest

import (
	"errors"

	"github.com/lockaround/lockaround/decorator/cache"
)

var failureChecks = []check{
	{"ForgottenClaimStoresNothing", needs(forgetting), func(f *fixture) {
		f.claim(f.key, 5, long)
		f.h.Forget()
		f.mustNotPut(f.key, 5, "v")
		f.mustHaveNone(f.key)
		f.load(f.key, 3, "w", long)
		f.mustHave(f.key, "w")
	}},
	{"ClaimSurvivesALostReply", needs(losing), func(f *fixture) {
		lost := f.losing()
		if _, err := f.store.Claim(f.t.Context(), f.key, 5, long); errors.Is(err, cache.ErrSuperseded) {
			f.t.Errorf("claim without a reply: %v", err)
		}
		lost()
		f.claim(f.key, 5, long)
		f.mustPut(f.key, 5, "v", long)
	}},
	{"PutSurvivesALostReply", needs(losing), func(f *fixture) {
		f.claim(f.key, 5, long)
		lost := f.losing()
		stored, err := f.store.Put(f.t.Context(), f.key, 5, []byte("v"), long)
		if err == nil && !stored {
			f.t.Error("put without a reply is refused")
		}
		lost()
		f.mustPut(f.key, 5, "v", long)
		f.mustHave(f.key, "v")
	}},
	{"InvalidationSurvivesALostReply", needs(losing), func(f *fixture) {
		f.load(f.key, 5, "v", long)
		f.get(f.key)
		lost := f.losing()
		_ = f.store.Invalidate(f.t.Context(), f.key) // whether it knows is its own
		lost()
		f.mustHaveNone(f.key)
		f.mustNotPut(f.key, 5, "v")
		f.invalidate(f.key)
		f.mustHaveNone(f.key)
	}},
}

// losing loses the reply to the next request; the function returned fails the check if none
// was lost, because it has then tested nothing.
func (f *fixture) losing() (wasLost func()) {
	lost := f.h.LoseReply()
	return func() {
		f.t.Helper()
		if !lost() {
			f.t.Fatal("the harness did not lose the reply, so nothing was tested")
		}
	}
}
