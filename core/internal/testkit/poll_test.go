package testkit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/internal/testkit"
)

func TestWhatNeverHoldsIsWaitedForByContextAndForTwoMinutesAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := testkit.Condition(ctx, "a sign", func() bool { return false }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a context of a second: %v", err)
		}
		began := time.Now()
		err := testkit.Condition(t.Context(), "a sign", func() bool { return false })
		if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "a sign") || took < 2*time.Minute || took > 121*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
		began = time.Now()
		testkit.Until(t, "a second", func() bool { return time.Since(began) >= time.Second })
	})
}
