package sale

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"

	"github.com/lockaround/lockaround/core"
)

// What a replica and the process that started it say to each other, a line
// each. After "go" the replica answers with its tally as JSON and ends.
const (
	ready = "ready"
	start = "go"
)

// replica is one of several processes of a run: it opens a shop of its own and
// sends its share of the buyers there when it is told to.
func replica(ctx context.Context, o options, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	st := stockOf(o)
	defer func() { _ = st.Close() }()
	s, err := open(o, st, core.Forever)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, ready); err != nil {
		return errors.Join(err, s.Close())
	}
	if err := expect(bufio.NewReader(in), start); err != nil {
		return errors.Join(err, s.Close())
	}
	t, err := buy(ctx, s, o.buyers)
	if err == nil {
		err = json.NewEncoder(out).Encode(t)
	}
	return errors.Join(err, s.Close())
}

// expect reads one line, which must be want.
func expect(r *bufio.Reader, want string) error {
	line, err := r.ReadBytes('\n')
	if got := bytes.TrimSpace(line); string(got) != want {
		return fmt.Errorf("expected %q from the other process, got %q: %w", want, got, errors.Join(err))
	}
	return nil
}

// started is a replica as seen from the process that started it.
type started struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// buyInReplicas splits the buyers over o.processes processes, lets them all
// go at the same time and adds up what they report.
func buyInReplicas(ctx context.Context, o options, st stock, stderr io.Writer) (total tally, err error) {
	errs := &inTurn{w: stderr}

	// Whatever goes wrong, no replica outlives this call.
	ctx, cancel := context.WithCancel(ctx)
	var all []started
	defer func() {
		if err != nil {
			cancel()
		}
		for _, r := range all {
			_ = r.in.Close() // it may have ended, which closed it
			if e := r.cmd.Wait(); e != nil {
				err = errors.Join(err, fmt.Errorf("replica: %w", e))
			}
		}
		cancel()
	}()

	for i := range o.processes {
		share := o.buyers / o.processes
		if i < o.buyers%o.processes {
			share++
		}
		r, err := startReplica(ctx, o, st, share, errs)
		if err != nil {
			return total, err
		}
		all = append(all, r)
	}
	for _, r := range all {
		if err := expect(r.out, ready); err != nil {
			return total, err
		}
	}
	for _, r := range all {
		if _, err := fmt.Fprintln(r.in, start); err != nil {
			return total, err
		}
	}
	for _, r := range all {
		var t tally
		if err := json.NewDecoder(r.out).Decode(&t); err != nil {
			return total, fmt.Errorf("read a replica's tally: %w", err)
		}
		total.add(t)
	}
	return total, nil
}

// inTurn is a writer that several replicas may write to.
type inTurn struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *inTurn) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// startReplica runs this program again as a replica with its share of buyers.
func startReplica(ctx context.Context, o options, st stock, share int, stderr io.Writer) (started, error) {
	program, err := os.Executable()
	if err != nil {
		return started{}, fmt.Errorf("find this program to start it again: %w", err)
	}
	args := []string{
		"-replica", "-redis", o.place.list, "-sentinel", o.place.master, "-namespace", o.namespace,
		"-buyers", strconv.Itoa(share), "-locked=" + strconv.FormatBool(o.locked),
	}
	if o.store != nil {
		args = append(args, "-store", o.store.Name, "-at", o.at)
	}
	if service, ok := st.(*httpStock); ok {
		args = append(args, "-stock", service.url)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return started{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return started{}, err
	}
	if err := cmd.Start(); err != nil {
		return started{}, fmt.Errorf("start a replica: %w", err)
	}
	return started{cmd: cmd, in: in, out: bufio.NewReader(out)}, nil
}
