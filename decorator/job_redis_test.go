package decorator_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/decorator"
)

// replicaVar makes this test binary a replica: its value is the address of the server and
// by how many milliseconds the replica's clock is late.
const replicaVar = "LOCKAROUND_TEST_JOB_REPLICA"

// The times leave half a second for a machine that is busy with other tests.
var (
	realPolicy   = core.Policy{Key: "job:report", TTL: 400 * time.Millisecond}
	realSchedule = decorator.Schedule{Every: 3 * time.Second, Skew: 100 * time.Millisecond, MaxRun: 100 * time.Millisecond, CatchUp: true}
)

// At the ticks 1 and 2 the replica that runs the job first is killed, and 3 is run by the
// last of three.
const (
	realTicks   = 4
	firstKilled = 1
	lastKilled  = 2
)

func TestJobIsRunOnceATickByProcessesOfWhichSomeAreKilled(t *testing.T) {
	t.Parallel()
	addr := startRedis(t)
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: addr})
	defer func() { _ = rdb.Close() }()
	var replicas []*process
	for late := 0; late <= 100; late += 50 {
		replicas = append(replicas, startReplica(t, addr, late))
	}
	var outs sync.WaitGroup
	for _, p := range replicas {
		if line := p.read(); line != "ready" {
			t.Fatalf("a replica said %q", line)
		}
		outs.Go(func() {
			for line := p.read(); line != ""; line = p.read() {
				if line != "hangs" {
					t.Errorf("a replica said %q", line)
				}
				p.kill()
			}
		})
	}
	first := time.Now().Add(time.Second)
	for _, p := range replicas {
		if _, err := fmt.Fprintln(p.in, first.UnixNano()); err != nil {
			t.Fatal(err)
		}
	}
	outs.Wait()

	last := int64(0)
	for n := range realTicks {
		alive, want := 3, "ran"
		if n >= firstKilled {
			alive = 3 - (min(n, lastKilled) - firstKilled + 1)
		}
		if n >= firstKilled && n <= lastKilled {
			want = "caught_up"
		}
		tokens := rdb.LRange(t.Context(), fmt.Sprint("completed:", n), 0, -1).Val()
		if len(tokens) != 1 {
			t.Errorf("tick %d was completed %d times", n, len(tokens))
			continue
		}
		if token, err := strconv.ParseInt(tokens[0], 10, 64); err != nil || token <= last {
			t.Errorf("tick %d: token %s after %d", n, tokens[0], last)
		} else {
			last = token
		}
		outcomes := rdb.LRange(t.Context(), fmt.Sprint("outcomes:", n), 0, -1).Val()
		slices.Sort(outcomes)
		if expect := append([]string{want}, slices.Repeat([]string{"skipped"}, alive-1)...); !slices.Equal(outcomes, expect) {
			t.Errorf("tick %d: the calls of replicas that were not killed ended as %v, want %v", n, outcomes, expect)
		}
	}
}

// TestReplicaProcess is what a replica's process runs.
func TestReplicaProcess(t *testing.T) {
	addr, late, ok := strings.Cut(os.Getenv(replicaVar), " ")
	if !ok {
		t.Skip("runs in the processes that another test starts")
	}
	ms, err := strconv.Atoi(late)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: addr})
	defer func() { _ = rdb.Close() }()
	locks, err := core.New(redislock.New(rdb), core.WithNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close() }()
	job := decorator.Job(locks, realPolicy, func(ctx context.Context) error { return runOnRedis(ctx, rdb) }, realSchedule)

	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	go func() { // the test has ended before
		if _, err := in.ReadByte(); err != nil {
			os.Exit(1)
		}
	}()
	first := time.Unix(0, ns).Add(time.Duration(ms) * time.Millisecond)
	for n := range realTicks {
		<-time.After(time.Until(first.Add(time.Duration(n) * realSchedule.Every)))
		if err := job.Run(context.WithValue(t.Context(), tickNumber{}, n)); err != nil {
			fmt.Printf("tick %d: %v\n", n, err)
		}
		rdb.RPush(t.Context(), fmt.Sprint("outcomes:", n), job.Status().Outcome.String())
	}
	os.Exit(0) // without a line about tests
}

// runOnRedis is the job of a replica. It hangs where it is to be killed.
func runOnRedis(ctx context.Context, rdb *redis.Client) error {
	n := ctx.Value(tickNumber{}).(int)
	began, err := rdb.Incr(ctx, fmt.Sprint("began:", n)).Result()
	if err != nil {
		return err
	}
	if began == 1 && n >= firstKilled && n <= lastKilled {
		fmt.Println("hangs")
		select {}
	}
	lease, _ := core.LeaseFrom(ctx)
	return rdb.RPush(ctx, fmt.Sprint("completed:", n), lease.Token()).Err()
}

// process is a replica.
type process struct {
	cmd  *exec.Cmd
	in   io.Writer
	out  *bufio.Reader
	once sync.Once
}

// startReplica starts a process that ends with the test.
func startReplica(t *testing.T, addr string, late int) *process {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(program, "-test.run=^TestReplicaProcess$")}
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", replicaVar, addr, late))
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		_ = p.cmd.Wait() // reports the kill
	})
	return p
}

// read returns the next line, or nothing when the process has ended.
func (p *process) read() string {
	line, _ := p.out.ReadString('\n')
	return strings.TrimSpace(line)
}

// kill ends the process as kill -9 does.
func (p *process) kill() { p.once.Do(func() { _ = p.cmd.Process.Kill() }) }

// startRedis starts a server without persistence on a Unix socket, which it returns. It
// ends with the test.
func startRedis(t *testing.T) (socket string) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("LOCKAROUND_REQUIRE_SERVERS") == "1" {
			t.Fatalf("redis-server is required by LOCKAROUND_REQUIRE_SERVERS: %v", err)
		}
		t.Skipf("needs redis-server in PATH: %v", err)
	}
	socket = filepath.Join(t.TempDir(), "redis")
	cmd := exec.Command("redis-server", "--port", "0", "--unixsocket", socket, "--dir", t.TempDir(), "--save", "", "--appendonly", "no")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(strings.ToLower(lines.Text()), "ready to accept connections") {
	}
	ready := lines.Text() != ""
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, out)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		<-drained
		_ = cmd.Wait() // reports the kill
	})
	if !ready {
		t.Fatal("redis-server ended at once")
	}
	return socket
}
