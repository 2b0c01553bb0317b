package etcdlock_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
	"github.com/lockaround/lockaround/core/testservers"
)

func TestCallerIsToldWhatEtcdAnswers(t *testing.T) {
	t.Parallel()
	full := testservers.Etcd(t)
	fill(t, full)
	for what, tt := range map[string]struct{ addr, want string }{
		"no room":                         {full.Addr(), "database space exceeded"},
		"an address where nobody listens": {"127.0.0.1:1", "connection refused"},
	} {
		e, err := core.New(etcdlock.New(etcdtest.Client(t, tt.addr)), core.WithStoreTimeout(time.Second), core.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close() }() // it cannot clean up
		for _, wait := range []time.Duration{0, 500 * time.Millisecond, time.Second} {
			_, err := e.Acquire(t.Context(), core.Policy{Key: "k", Wait: wait})
			told := new(core.Error)
			if !errors.As(err, &told) || !errors.Is(err, core.ErrUnavailable) || told.Cause == nil || !strings.Contains(told.Cause.Error(), tt.want) {
				t.Errorf("acquire with %s, wait %v: %v (cause %v), want %q", what, wait, err, told.Cause, tt.want)
			}
			if strings.Contains(err.Error(), tt.want) {
				t.Errorf("acquire with %s: %v; the store's words are in the text, which clients may see", what, err)
			}
		}
	}
}
