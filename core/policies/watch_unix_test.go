//go:build unix

package policies_test

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/policies"
)

func TestWatchOfANamedPipeEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.yaml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"), core.WithOverrides(map[string]core.Override{}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close() }()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	ended := make(chan error, 1)
	go func() { ended <- policies.Watch(ctx, locks, path, 0) }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it reads the pipe, to which nobody writes")
	}
}
