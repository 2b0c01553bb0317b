package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/internal/hiccups"
	"github.com/lockaround/lockaround/core/lab/internal/server"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/redlock"
	"github.com/lockaround/lockaround/core/testservers"
)

const (
	older = "the-release-before"
	newer = "this-one"
)

// TestReleasesShareARedis runs workers of the release before and of this tree on the same
// keys, as they do while a release is rolled out. That the witness would see what is wrong
// is shown by trees whose scripts use other words under the same prefix.
func TestReleasesShareARedis(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the release before")
	}
	here, err := filepath.Abs(tree)
	if err != nil {
		t.Fatal(err)
	}
	before := before(t)
	server := testservers.Redis(t)
	store := store{name: "redis", addr: server.Addr(), patience: ttl + 3500*time.Millisecond, prompt: prompt, open: func(t *testing.T) (driver.Driver, io.Closer) {
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		return redislock.New(client), client
	}} // see redislock's promise of who is next after a crash
	programs := map[string]string{older: store.build(t, before, nil), newer: store.build(t, here, nil)}

	t.Run("without a difference", func(t *testing.T) {
		for _, fault := range share(t, store, programs, 10*time.Second, false) {
			t.Error(fault)
		}
	})
	for _, tt := range []struct {
		name     string
		old, new string // in all scripts
		caught   string
	}{
		{"the field of the holders has another name", `'s'`, `'S'`, "beside version"},
		{"a grant is told by another word", `'g'`, `'G'`, "by polls"},
		{"a trace is written in another way", "s.d = owner .. trace", "s.d = owner .. string.reverse(trace)", "has the trace of process"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			programs := map[string]string{older: programs[older], newer: store.build(t, here, rewritten(t, here, tt.old, tt.new))}
			for range 5 { // hand-overs are few where they wait for polls, and one tenth of them decides
				faults := share(t, store, programs, 4*time.Second, true)
				if strings.Contains(strings.Join(faults, "\n"), tt.caught) {
					return
				}
				t.Logf("the witness saw %d faults, and none with %q", len(faults), tt.caught)
			}
			t.Error("the witness did not see it")
		})
	}
}

// TestReleasesShareThreeRedisServers is the same for a majority of servers.
func TestReleasesShareThreeRedisServers(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the release before")
	}
	here, err := filepath.Abs(tree)
	if err != nil {
		t.Fatal(err)
	}
	var addrs []string
	for range 3 {
		addrs = append(addrs, testservers.Redis(t).Addr())
	}
	store := store{name: "quorum", addr: strings.Join(addrs, ","), patience: ttl + 6500*time.Millisecond, prompt: prompt, open: func(t *testing.T) (driver.Driver, io.Closer) {
		var clients []*redis.Client
		for _, addr := range addrs {
			client := redis.NewClient(&redis.Options{Addr: addr})
			t.Cleanup(func() { _ = client.Close() })
			clients = append(clients, client)
		}
		return redlock.New(clients), io.NopCloser(nil)
	}} // the next after a crash may have crashed too, and lapses after 3 seconds
	programs := map[string]string{older: store.build(t, before(t), nil), newer: store.build(t, here, nil)}
	for _, fault := range share(t, store, programs, 10*time.Second, false) {
		t.Error(fault)
	}
}

// TestReleasesShareAnEtcd is the same for etcd, of which names say who holds, and no scripts.
func TestReleasesShareAnEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the release before")
	}
	here, err := filepath.Abs(tree)
	if err != nil {
		t.Fatal(err)
	}
	started, err := server.Start(t.Context(), server.Etcd)
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") != "true" {
		t.Skipf("needs etcd: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := started.Close(); err != nil {
			t.Error(err)
		}
	})
	// An etcd lease may last for some seconds longer, and as long again if a waiter has not seen
	// its end. The place of a waiter that was killed holds up the queue for as long, so that
	// hand-overs are not judged.
	store := store{name: "etcd", module: "core/etcdlock", addr: started.Addr, patience: 3 * ttl, open: func(t *testing.T) (driver.Driver, io.Closer) {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{started.Addr}, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		return etcdlock.New(client), client
	}}
	programs := map[string]string{older: store.build(t, before(t), nil), newer: store.build(t, here, nil)}
	for _, fault := range share(t, store, programs, 10*time.Second, false) {
		t.Error(fault)
	}
}

// store is what workers of two releases share.
type store struct {
	name     string // of the worker's file for it
	module   string // of its driver; empty if that is the root
	addr     string
	patience time.Duration // how long a key stays taken whose holder was killed
	prompt   time.Duration // what 90% of the hand-overs take at most; 0: any time
	open     func(*testing.T) (driver.Driver, io.Closer)
}

const ttl = 5 * time.Second // of the workers

// before is the tree of the release before this one: of the last tag, or of the commit in
// testdata/previous as long as there is no tag.
func before(t *testing.T) string {
	t.Helper()
	last, err := git("tag", "--list", "v*", "--sort=-version:refname", "--merged", "HEAD", "--no-contains", "HEAD")
	revision, _, _ := strings.Cut(string(last), "\n")
	if err == nil && revision == "" {
		var id []byte
		id, err = os.ReadFile(filepath.Join("testdata", "previous"))
		revision = strings.TrimSpace(string(id))
	}
	var archive []byte
	if err == nil {
		archive, err = git("archive", "--format=tar", revision, "go.mod", "go.sum", "core")
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("CI needs the history of the tree: %v", err)
		}
		t.Skipf("needs the history of the tree: %v", err)
	}
	t.Logf("the release before is %s", revision)
	folder := t.TempDir()
	for files := tar.NewReader(bytes.NewReader(archive)); ; {
		f, err := files.Next()
		if errors.Is(err, io.EOF) {
			return folder
		}
		if err != nil {
			t.Fatal(err)
		}
		if f.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(folder, f.Name), content)
	}
}

// git runs git in the top folder of the tree.
func git(words ...string) ([]byte, error) {
	cmd := exec.Command("git", words...)
	var complaints bytes.Buffer
	cmd.Dir, cmd.Stderr = tree, &complaints
	said, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w: %s", words[0], err, bytes.TrimSpace(complaints.Bytes()))
	}
	return said, nil
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// build builds the worker with a tree, of which some files are replaced by others.
func (s store) build(t *testing.T, tree string, replaced map[string]string) (program string) {
	t.Helper()
	o := &outside{T: t, folder: t.TempDir()}
	o.env = append(os.Environ(), "GOWORK=off", o.also("GOFLAGS", " ", "-mod=mod"))
	module := "module example.com/worker\n\ngo 1.26.0\n"
	for _, m := range slices.Compact([]string{"", s.module}) {
		path := filepath.Join(root, m)
		module += "\nrequire " + path + " v0.0.0\nreplace " + path + " => " + filepath.Join(tree, m) + "\n"
	}
	o.write("go.mod", module)
	files := map[string]string{filepath.Join(tree, s.module, "go.sum"): "go.sum"}
	for _, name := range []string{"main.go", s.name + ".go"} {
		files[filepath.Join("testdata", "worker", name)] = name
	}
	for from, to := range files {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		o.write(to, string(content))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	o.write("overlay.json", string(overlay))
	o.run("go", "build", "-overlay", "overlay.json", "-o", "worker", ".")
	return filepath.Join(o.folder, "worker")
}

// rewritten replaces a word in the scripts of a tree, and returns the files in which it was,
// with those that stand for them.
func rewritten(t *testing.T, tree, from, to string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(tree, "core", "redislock", "internal", "protocol", "*.lua"))
	if err != nil {
		t.Fatal(err)
	}
	replaced, folder := make(map[string]string), t.TempDir()
	for _, f := range files {
		source, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(source, []byte(from)) {
			replaced[f] = filepath.Join(folder, filepath.Base(f))
			write(t, replaced[f], bytes.ReplaceAll(source, []byte(from), []byte(to)))
		}
	}
	if len(replaced) == 0 {
		t.Fatalf("no script has %s", from)
	}
	return replaced
}

// share runs two workers of each program on the same keys for some time, and returns what was
// wrong. It kills one of each and starts another instead, unless the program is a mutant:
// of those it is enough to see what they do wrong.
func share(t *testing.T, store store, programs map[string]string, load time.Duration, mutant bool) (wrong []string) {
	t.Helper()
	machine := hiccups.Start(t)
	w := newWitness(t)
	namespace := fmt.Sprintf("release-%d", time.Now().UnixNano())
	versions := []string{older, newer}
	var running []*exec.Cmd
	start := func(version string) *exec.Cmd {
		cmd := exec.Command(programs[version], version, store.addr, w.listener.Addr().String(), namespace)
		if !mutant {
			cmd.Stderr = os.Stderr
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	kill := func(cmd *exec.Cmd) {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill() // it may have ended by itself
			_ = cmd.Wait()         // reports the kill
		}
	}
	defer func() {
		for _, cmd := range running {
			kill(cmd)
		}
	}()
	for _, v := range versions {
		running = append(running, start(v), start(v))
	}
	judge := func() []string { return w.judge(t, versions, machine.Allow(store.patience), store.prompt) }
	tool, pids := watch(t, store, namespace), make(map[string][]int)
	if mutant {
		time.Sleep(load)
		return append(tool.judge(w, []int{running[0].Process.Pid, running[1].Process.Pid, running[2].Process.Pid, running[3].Process.Pid}), judge()...)
	}
	for i, v := range versions {
		time.Sleep(load / 5)
		pids[v] = append(pids[v], running[2*i].Process.Pid, running[2*i+1].Process.Pid)
		kill(running[2*i])
		running[2*i] = start(v)
		pids[v] = append(pids[v], running[2*i].Process.Pid)
	}
	time.Sleep(load * 3 / 5)
	tool.await(w, machine.Allow(time.Minute))
	wrong = tool.judge(w, slices.Concat(pids[older], pids[newer]))
	w.stop()
	for _, cmd := range running {
		if err := cmd.Wait(); err != nil {
			wrong = append(wrong, fmt.Sprintf("a worker ended with %v", err))
		}
	}
	return append(wrong, judge()...)
}
