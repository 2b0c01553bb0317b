package decorator_test

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
)

// planVar makes this test binary a child of a test: its value says in JSON what the child
// is to do, and -test.run which test is its program.
const planVar = "LOCKAROUND_TEST_PLAN"

// patience is more than a busy machine lets a process or a server wait, and than a lease or
// an answer needs to last.
const patience = 5 * time.Minute

// patientClient returns a client of a server on a Unix socket that is slow when the machine
// is busy.
func patientClient(socket string) *redis.Client {
	return redis.NewClient(&redis.Options{Network: "unix", Addr: socket, DialTimeout: patience, ReadTimeout: patience})
}

// child is a process that a test has started. It prints "ready", begins when it is told
// to, and ends with status 0. Whatever else it prints is for the test.
type child struct {
	cmd  *exec.Cmd
	in   io.Writer
	out  *bufio.Reader
	once sync.Once
}

// startChild starts a process that runs the test of that name and ends with t at the latest.
func startChild(t *testing.T, program string, plan any) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.Command(self, "-test.run=^"+program+"$")}
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
		c.kill()
		_ = c.wait() // reports the kill
	})
	return c
}

// begin tells the child to begin, also before it is ready.
func (c *child) begin(t *testing.T) {
	t.Helper()
	if _, err := fmt.Fprintln(c.in, "begin"); err != nil {
		t.Fatal(err)
	}
}

// read returns the next line, or nothing when the child has ended.
func (c *child) read() string {
	line, _ := c.out.ReadString('\n')
	return strings.TrimSpace(line)
}

// kill ends the child as kill -9 does.
func (c *child) kill() { _ = c.cmd.Process.Kill() } // it may have ended by itself

// wait returns when the child has ended.
func (c *child) wait() (err error) {
	c.once.Do(func() { err = c.cmd.Wait() })
	return err
}

// beAChild runs work with the plan of the test that has started this process, when that says
// so. It does not return: the test would print lines of its own.
func beAChild[Plan any](t *testing.T, work func(Plan) error) {
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
