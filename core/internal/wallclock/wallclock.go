// Package wallclock makes the wall clock of a server jump, for tests. A server that asks
// the C library for the time, as Redis, PostgreSQL and MariaDB do, is told another one by a
// library that is loaded before that one.
package wallclock

import (
	"cmp"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/internal/testkit/daemon"
)

//go:embed shim/shim.c
var source string

// Clock is the wall clock of the servers that are started in its environment.
type Clock struct {
	library, path string

	mu     sync.Mutex
	offset time.Duration
}

// New is [Build] for a test. It skips the test if there is no C compiler on this machine, or
// fails it if the environment says LOCKAROUND_REQUIRE_SERVERS=1.
func New(t testing.TB) *Clock {
	t.Helper()
	// Not t.TempDir, which is for nobody else: servers run as users of their own.
	dir, err := os.MkdirTemp("", "lockaround-clock-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c, err := Build(dir)
	if errors.Is(err, exec.ErrNotFound) {
		daemon.Missing(t, "a C compiler", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Build makes a clock whose files are in a folder that its servers can read. The error is an
// [exec.ErrNotFound] if there is no C compiler.
func Build(dir string) (*Clock, error) {
	c := &Clock{library: filepath.Join(dir, "clock.so"), path: filepath.Join(dir, "offset")}
	cmd := exec.Command(cmp.Or(os.Getenv("CC"), "gcc"), "-shared", "-fPIC", "-O1", "-x", "c", "-o", c.library, "-")
	cmd.Stdin = strings.NewReader(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile the clock: %w: %s", err, out)
	}
	return c, c.write()
}

// Environment is what a server has to be started with besides its own.
func (c *Clock) Environment() []string {
	return []string{"LD_PRELOAD=" + c.library, "LOCKAROUND_CLOCK=" + c.path}
}

// Jump moves the clock by whole seconds, at once.
func (c *Clock) Jump(by time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += by
	return c.write()
}

// Offset is how far the clock is ahead of the machine's.
func (c *Clock) Offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offset
}

// write changes the file in its place, since servers have it in their memory.
func (c *Clock) write() error {
	f, err := os.OpenFile(c.path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	text := binary.NativeEndian.AppendUint64(nil, uint64(int64(c.offset/time.Second)))
	_, err = f.WriteAt(text, 0)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	return nil
}
