package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Trial is one scenario of one peer in one round.
type Trial struct {
	Scenario string             `json:"scenario"`
	Peer     string             `json:"peer"`
	Round    int                `json:"round"`
	Measures map[string]float64 `json:"measures,omitempty"` // by Metric.Name
	Shares   []float64          `json:"shares,omitempty"`   // of the processes, in percent, largest first
	Overlaps int64              `json:"overlaps"`           // how often two were in the critical section
	Error    string             `json:"error,omitempty"`    // why its measures do not count
	Outcomes []*Outcome         `json:"outcomes,omitempty"` // of the processes
	Took     time.Duration      `json:"took"`
}

// GaveUp is how many calls to lock ended without it.
func (t Trial) GaveUp() (n int64) {
	for _, o := range t.Outcomes {
		n += o.GaveUp
	}
	return n
}

// setting is what the trials of a run have in common.
type setting struct {
	servers map[Store]*server
	errs    map[Store]error // of those that could not be started
	folder  string          // for witnesses
	pace    Pace
}

// try runs one trial. A peer that fails or hangs makes an error in it.
func (l *setting) try(ctx context.Context, s Scenario, p Peer, round int) Trial {
	began := time.Now()
	t := Trial{Scenario: s.Name, Peer: p.Name, Round: round}
	if err := l.stage(ctx, s, p, &t); err != nil {
		t.Error = err.Error()
	}
	t.Took = time.Since(began)
	return t
}

func (l *setting) stage(ctx context.Context, s Scenario, p Peer, t *Trial) error {
	if err := l.errs[p.Store]; err != nil {
		return err
	}
	store := l.servers[p.Store]
	if err := store.Wipe(ctx); err != nil {
		return fmt.Errorf("empty the store: %w", err)
	}
	addr := store.Addr
	if s.Delay > 0 {
		link, err := newLink(addr, s.Delay)
		if err != nil {
			return err
		}
		defer link.Close()
		addr = link.Addr()
	}
	name := fmt.Sprint(strings.ReplaceAll(s.Name, "/", "-"), "-", p.Name, "-", t.Round)
	path := filepath.Join(l.folder, name)
	eyes, err := openWitness(path, s.Callers)
	if err != nil {
		return err
	}
	defer os.Remove(path) //nolint:errcheck // its folder is removed too
	defer eyes.Close()    //nolint:errcheck // nobody uses it any more

	pace := l.pace.of(s)
	ends := pace.Warm + pace.Watch
	if s.Finite {
		ends = pace.Limit
	}
	ctx, cancel := context.WithTimeoutCause(ctx, ends+2*pace.Grace,
		fmt.Errorf("it hung: not at its end %v after what it was given", 2*pace.Grace))
	defer cancel()
	t.Outcomes, err = play(ctx, s.Processes, Job{
		Peer: p.Name, Scenario: s.Name, Addr: addr, Witness: path, Prefix: name, Pace: pace,
	})
	t.Overlaps = eyes.overlaps()
	if err != nil {
		return err
	}
	t.measure(s)
	return t.verdict(s)
}

// play has the processes begin together, and returns what they report. It ends with ctx,
// and leaves no process behind.
func play(ctx context.Context, processes int, job Job) ([]*Outcome, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	outcomes := make([]*Outcome, processes)
	var readying, all sync.WaitGroup
	begin := make(chan struct{})
	readying.Add(processes)
	for i := range processes {
		all.Go(func() {
			job := job
			job.Number = int64(i + 1)
			outcome, err := run(ctx, program, job, sync.OnceFunc(readying.Done), begin)
			if err != nil {
				cancel(fmt.Errorf("process %d: %w", i+1, err)) // the others wait for it
			}
			outcomes[i] = outcome
		})
	}
	readying.Wait()
	close(begin)
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return outcomes, nil
}

// run is one worker from its start to its end. It calls ready when the worker is, or
// never will be.
func run(ctx context.Context, program string, job Job, ready func(), begin <-chan struct{}) (*Outcome, error) {
	defer ready()
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
	complaints := &tail{}
	cmd.Stderr = complaints
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	outcome, err := converse(json.NewDecoder(out), in, ready, begin)
	if werr := cmd.Wait(); ctx.Err() != nil {
		return nil, context.Cause(ctx)
	} else if werr != nil && (err == nil || errors.Is(err, io.EOF)) {
		err = fmt.Errorf("%w: %s", werr, complaints)
	}
	return outcome, err
}

func converse(from *json.Decoder, to io.WriteCloser, ready func(), begin <-chan struct{}) (*Outcome, error) {
	defer to.Close() //nolint:errcheck // the worker ends by it
	for {
		var m Message
		if err := from.Decode(&m); err != nil {
			return nil, fmt.Errorf("it said nothing of its end: %w", err)
		}
		switch {
		case m.Error != "":
			return nil, errors.New(m.Error)
		case m.Outcome != nil:
			return m.Outcome, nil
		}
		ready()
		<-begin
		if _, err := io.WriteString(to, "begin\n"); err != nil {
			return nil, err
		}
	}
}

// measure computes the trial's figures from its outcomes.
func (t *Trial) measure(s Scenario) {
	waits := new(Waits)
	var sections int64
	var perSecond float64
	began, ended := t.Outcomes[0].Began, t.Outcomes[0].Ended
	for _, o := range t.Outcomes {
		if o.Waits != nil {
			waits.Merge(o.Waits)
		}
		sections += o.Sections
		if o.Watched > 0 {
			perSecond += float64(o.Sections) / o.Watched.Seconds()
		}
		began, ended = min(began, o.Began), max(ended, o.Ended)
	}
	if s.Processes > 1 && sections > 0 {
		for _, o := range t.Outcomes {
			t.Shares = append(t.Shares, 100*float64(o.Sections)/float64(sections))
		}
		slices.SortFunc(t.Shares, func(a, b float64) int { return int(b*1e6 - a*1e6) })
	}
	median, worst := waits.Quantile(0.5), waits.Worst()
	trip := float64(2 * s.Delay)
	t.Measures = map[string]float64{}
	for _, m := range s.Metrics {
		var v float64
		switch m.Name {
		case "rate":
			v = perSecond
		case "least-share":
			v = slices.Min(append(t.Shares, 100))
		case "median":
			v = float64(median) / trip
		case "p99":
			v = float64(waits.Quantile(0.99)) / trip
		case "elapsed":
			v = milliseconds(time.Duration(ended - began))
		case "spread":
			v = float64(worst) / float64(max(median, 1))
		case "worst":
			v = milliseconds(worst)
		}
		t.Measures[m.Name] = v
	}
}

// verdict says why the measures do not count, if they don't.
func (t *Trial) verdict(s Scenario) error {
	var sections int64
	for _, o := range t.Outcomes {
		sections += o.Sections
		if o.Unlocks > 0 {
			return fmt.Errorf("%d unlocks failed: %s", o.Unlocks, o.Unlocked)
		}
	}
	stalled := slices.MinFunc(t.Outcomes, func(a, b *Outcome) int { return int(a.Stalled - b.Stalled) })
	switch gaveUp := t.GaveUp(); {
	case t.Overlaps > 0:
		return fmt.Errorf("%d times two callers held one lock", t.Overlaps)
	case s.Finite && sections < int64(s.Processes*s.Callers):
		return fmt.Errorf("%d of %d gave up: %s", int64(s.Processes*s.Callers)-sections, s.Processes*s.Callers, t.refusal())
	case stalled.Stalled > 0:
		return fmt.Errorf("it hung: %d critical sections, none in the last %v of %v", sections,
			stalled.Stalled.Round(10*time.Millisecond), stalled.Watched.Round(10*time.Millisecond))
	case sections == 0:
		return fmt.Errorf("no critical section at all; %d calls to lock failed: %s", gaveUp, t.refusal())
	}
	return nil
}

func (t *Trial) refusal() string {
	for _, o := range t.Outcomes {
		if o.Refusal != "" {
			return o.Refusal
		}
	}
	return ""
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// tail keeps the end of what is written to it.
type tail struct{ kept []byte }

func (t *tail) Write(b []byte) (int, error) {
	const most = 2000
	t.kept = append(t.kept, b...)
	t.kept = t.kept[max(0, len(t.kept)-most):]
	return len(b), nil
}

// String is the first line of the end, which tells most of a panic.
func (t *tail) String() string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(t.kept)), "\n")
	return line
}
