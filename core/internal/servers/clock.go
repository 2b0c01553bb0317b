package servers

import (
	"cmp"
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

//go:embed shim/shim.c
var source string

// clock is a wall clock that jumps. A server that asks the C library for the time, as Redis,
// PostgreSQL and MariaDB do, is told another one by a library that is loaded before that one.
type clock struct {
	library, path string

	mu     sync.Mutex
	offset time.Duration
}

// buildClock makes a clock whose files are in a folder that its server can read. The error is an
// [exec.ErrNotFound] if there is no C compiler.
func buildClock(dir string) (*clock, error) {
	c := &clock{library: filepath.Join(dir, "clock.so"), path: filepath.Join(dir, "offset")}
	cmd := exec.Command(cmp.Or(os.Getenv("CC"), "gcc"), "-shared", "-fPIC", "-O1", "-x", "c", "-o", c.library, "-")
	cmd.Stdin = strings.NewReader(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile the clock: %w: %s", err, out)
	}
	return c, c.write()
}

// environment is what a server has to be started with besides its own.
func (c *clock) environment() []string {
	return []string{"LD_PRELOAD=" + c.library, "LOCKAROUND_CLOCK=" + c.path}
}

// jump moves the clock by whole seconds, at once.
func (c *clock) jump(by time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += by
	return c.write()
}

// ahead is how far the clock is ahead of the machine's.
func (c *clock) ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offset
}

// write changes the file in its place, since servers have it in their memory.
func (c *clock) write() error {
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
