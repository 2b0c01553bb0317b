package main

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// trial is one command, of one driver, and the figures that it tells of.
type trial struct {
	Driver  string
	Figures []int
	Env     []string
	Args    []string
}

// Command is what somebody types into a shell to do the same.
func (t trial) Command() string {
	var words []string
	for _, w := range t.Args {
		if strings.ContainsAny(w, `^$|()*? '"\`) {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		words = append(words, w)
	}
	return strings.Join(slices.Concat(t.Env, words), " ")
}

// outcome is what became of a figure.
type outcome string

const (
	reached     outcome = "reached"
	fellShort   outcome = "fell short"
	notApplying outcome = "does not apply"
	notRun      outcome = "not run yet"
)

// row is a figure of a driver as one command tells of it.
type row struct {
	Figure  int       `json:"figure"`
	Driver  string    `json:"driver"`
	Command string    `json:"command,omitempty"`
	Outcome outcome   `json:"outcome"`
	Text    string    `json:"text"` // what was counted, what went wrong, or why it does not apply
	Date    time.Time `json:"date,omitzero"`
	Seconds float64   `json:"seconds,omitempty"`
	Machine string    `json:"machine,omitempty"`
}

// run runs the command and returns a row for each figure that it is to tell of, and for any
// other that it does. The error is that it was interrupted: a command that fails has fallen
// short.
func (t trial) run(ctx context.Context, began time.Time, progress func(string, ...any)) ([]row, error) {
	said := &report{Tests: t.tests(), Progress: progress}
	failure := t.start(ctx, said)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if failure != nil {
		for _, l := range said.ending() {
			progress("    %s", l)
		}
	}
	var rows []row
	for f := range len(figures) + 1 {
		if !slices.Contains(t.Figures, f) && !said.tells(f) {
			continue
		}
		r := row{
			Figure: f, Driver: t.Driver, Command: t.Command(), Date: began.UTC().Truncate(time.Second),
			Seconds: time.Since(began).Round(time.Second / 10).Seconds(), Machine: machine(),
		}
		r.Outcome, r.Text = said.outcome(f, failure)
		rows = append(rows, r)
	}
	return rows, nil
}

// start runs the command to its end. Whatever it has started ends with it: they are a
// process group of their own.
func (t trial) start(ctx context.Context, said *report) error {
	args := slices.Clone(t.Args)
	if t.tests() {
		args = slices.Insert(args, 2, "-json")
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), t.Env...)
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	err := cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // there may be none left
	}
	said.end()
	return err
}

// tests reports whether the command is one of tests, which tell by their attributes.
func (t trial) tests() bool { return len(t.Args) > 2 && t.Args[0] == "go" && t.Args[1] == "test" }
