package stocktest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
)

// replicaVar makes a test binary a replica: its value is the Replica as JSON.
const replicaVar = "LOCKAROUND_TEST_REPLICA"

// Main is the first call of a TestMain. It does not return in a process that [Start] has
// started.
func Main() {
	text, is := os.LookupEnv(replicaVar)
	if !is {
		return
	}
	var r Replica
	err := json.Unmarshal([]byte(text), &r)
	if err == nil {
		err = r.Run(os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "replica:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Process is a replica as a test sees it. It is for one goroutine.
type Process struct {
	Replica
	Addresses
	Told map[string]int // how often its buyers were told each word
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

// Start starts a replica that ends with the test.
func Start(t *testing.T, r Replica) *Process {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	// The time ends what would wait for a line for ever.
	ctx, cancel := context.WithTimeout(context.Background(), 4*Patience)
	p := &Process{Replica: r, cmd: exec.CommandContext(ctx, program), Told: map[string]int{}}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), replicaVar+"="+string(text)), os.Stderr
	in, inErr := p.cmd.StdinPipe()
	out, outErr := p.cmd.StdoutPipe()
	p.in, p.out = in, bufio.NewReader(out)
	if err := errors.Join(inErr, outErr, p.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer cancel()
		_ = p.in.Close()
		if t.Failed() {
			cancel()
		}
		if p.cmd.ProcessState != nil {
			return // the test has killed it
		}
		if err := p.cmd.Wait(); err != nil && !t.Failed() {
			t.Errorf("replica %d: %v", p.Number, err)
		}
	})
	if _, err := fmt.Fscanln(p.out, &p.HTTP, &p.GRPC); err != nil {
		t.Fatal(err)
	}
	return p
}

// Order gives an order, which is in force then: see [Replica.Run].
func (p *Process) Order(t *testing.T, word string) {
	t.Helper()
	if _, err := fmt.Fprintln(p.in, word); err != nil {
		t.Fatal(err)
	}
	p.says(t, "noted")
}

// Holding returns when a sale that was to pause has the lock.
func (p *Process) Holding(t *testing.T) {
	t.Helper()
	p.says(t, "holding")
}

func (p *Process) says(t *testing.T, want string) {
	t.Helper()
	if got, err := p.out.ReadString('\n'); got != want+"\n" {
		t.Fatalf("replica %d says %q, %v; want %q", p.Number, got, err, want)
	}
}

// Kill ends the process as kill -9 does.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	_ = p.cmd.Wait()         // reports the kill
}

// Crowd is the buyers that were sent to a replica at once.
type Crowd struct {
	*Process
	words []string
	all   sync.WaitGroup
}

// Send sends n buyers to each of the replica's entrances.
func (p *Process) Send(t *testing.T, n int) *Crowd {
	c := &Crowd{Process: p, words: make([]string, n*len(Entrances))}
	for i := range c.words {
		c.all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), Patience)
			defer cancel()
			c.words[i] = Entrances[i%len(Entrances)].Buy(ctx, c.Addresses)
		})
	}
	return c
}

// Hear waits for all answers, which have to be of these words, and counts them.
func (c *Crowd) Hear(t *testing.T, words ...string) map[string]int {
	t.Helper()
	c.all.Wait()
	got := map[string]int{}
	for _, word := range c.words {
		got[word]++
		c.Told[word]++
		if !slices.Contains(words, word) {
			t.Errorf("replica %d told a buyer %q, want one of %q", c.Number, word, words)
		}
	}
	return got
}
