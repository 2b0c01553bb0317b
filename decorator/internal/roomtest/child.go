// Package roomtest has what the tests of decorator and of the packages beside it share.
package roomtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/redislock"
)

// planVar makes this test binary a child of a test: its value says in JSON what the child
// is to do, and -test.run which test is its program.
const planVar = "LOCKAROUND_TEST_PLAN"

// Patience is more than a busy machine lets a process or a server wait, and than a lease or
// an answer needs to last.
const Patience = 5 * time.Minute

// Client returns a client of a server that is slow when the machine is busy.
func Client(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, DialTimeout: Patience, ReadTimeout: Patience})
}

// Locks opens the engine of a child, which is as patient.
func Locks(client *redis.Client) (*core.Engine, error) {
	return core.New(redislock.New(client), core.WithNamespace("test"), core.WithStoreTimeout(Patience))
}

// Hangs is what a process prints that is to be killed.
const Hangs = "hangs"

// Child is a process that a test has started. It prints "ready", begins when it is told
// to, and ends with status 0. Whatever else it prints is for the test.
type Child struct {
	cmd  *exec.Cmd
	in   io.Writer
	out  *bufio.Reader
	once sync.Once
}

// Start starts a process that runs the test of that name and ends with t at the latest.
func Start(t *testing.T, program string, plan any) *Child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	c := &Child{cmd: exec.Command(self, "-test.run=^"+program+"$")}
	c.cmd.Env = append(os.Environ(), planVar+"="+string(text))
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Kill()
		_ = c.Wait() // reports the kill
	})
	return c
}

// Begin tells the child to begin, also before it is ready.
func (c *Child) Begin(t *testing.T) {
	t.Helper()
	if _, err := fmt.Fprintln(c.in, "begin"); err != nil {
		t.Fatal(err)
	}
}

// Read returns the next line, or nothing when the child has ended.
func (c *Child) Read() string {
	line, _ := c.out.ReadString('\n')
	return strings.TrimSpace(line)
}

// Kill ends the child as kill -9 does.
func (c *Child) Kill() { _ = c.cmd.Process.Kill() } // it may have ended by itself

// Wait returns when the child has ended.
func (c *Child) Wait() (err error) {
	c.once.Do(func() { err = c.cmd.Wait() })
	return err
}

// Be runs work with the plan of the test that has started this process, when that says
// so. It does not return: the test would print lines of its own.
func Be[Plan any](t *testing.T, work func(Plan) error) {
	t.Helper()
	text, ok := os.LookupEnv(planVar)
	if !ok {
		t.Skip("runs in the processes that another test starts")
	}
	var plan Plan
	if err := json.Unmarshal([]byte(text), &plan); err != nil {
		t.Fatal(err)
	}
	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	go func() { // the test has ended before
		if _, err := in.ReadByte(); err != nil {
			os.Exit(1)
		}
	}()
	if err := work(plan); err != nil {
		fmt.Println(err)
	}
	os.Exit(0)
}

// Process is its process.
func (c *Child) Process() *os.Process { return c.cmd.Process }
