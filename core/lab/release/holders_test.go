package main

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
)

// watching is what an operator of this tree sees of the keys that workers of both versions use.
type watching struct {
	t    *testing.T
	stop chan struct{}

	mu   sync.Mutex
	seen []seen

	running sync.WaitGroup
}

type seen struct {
	key string
	core.Holder
}

// watch inspects the keys until the judgement.
func watch(t *testing.T, store store, namespace string) *watching {
	t.Helper()
	d, client := store.open(t)
	tool, err := core.New(d, core.WithNamespace(namespace))
	if err != nil {
		t.Fatal(err)
	}
	w := &watching{t: t, stop: make(chan struct{})}
	w.running.Go(func() {
		defer client.Close()                //nolint:errcheck // after all answers
		defer func() { _ = tool.Close() }() // it holds nothing
		for {
			for _, key := range []string{"exclusive", "strict", "sent", "renewed", "shared", "semaphore"} {
				st, err := tool.Inspect(t.Context(), key)
				if err != nil {
					t.Errorf("inspect: %v", err)
					return
				}
				w.mu.Lock()
				for _, h := range st.Holders {
					w.seen = append(w.seen, seen{key, h})
				}
				w.mu.Unlock()
			}
			select {
			case <-w.stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	return w
}

// enough is of how many leases of each version the holder is to be seen.
const enough = 20

// count returns of how many leases of each version the holder was seen.
func (w *watching) count(said *witness) map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	said.mu.Lock()
	defer said.mu.Unlock()
	type lease struct {
		key   string
		token int64
	}
	count, known := make(map[string]int), make(map[lease]bool)
	for _, s := range w.seen {
		version := said.keys[s.key].versions[atStore(s.Token)]
		if version == "" || known[lease{s.key, s.Token}] { // or it was killed before it could say so
			continue
		}
		known[lease{s.key, s.Token}] = true
		count[version]++
		if s.TraceID.IsValid() {
			count[version+", traced"]++
		}
	}
	return count
}

// await waits, for so long at most, until enough was seen. While the places of those that were
// killed are in the queues, nobody else has the keys, and on a busy machine looks are few.
func (w *watching) await(said *witness, most time.Duration) {
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if count := w.count(said); min(count[older], count[newer], count[newer+", traced"]) >= enough {
			return
		}
	}
}

// judge returns what was wrong about the holders that were seen: each has a name of its own, and no
// trace but its own. pids are the processes of both versions.
func (w *watching) judge(said *witness, pids []int) (wrong []string) {
	close(w.stop)
	w.running.Wait()
	count := w.count(said)
	said.mu.Lock()
	defer said.mu.Unlock()
	for _, s := range w.seen {
		version := said.keys[s.key].versions[atStore(s.Token)]
		if version == "" {
			continue // it was killed before it could say so
		}
		traced := ""
		if s.TraceID.IsValid() {
			traced = fmt.Sprint(binary.BigEndian.Uint64(s.TraceID[:]))
		}
		_, pid, _ := strings.Cut(s.Identity, ":")
		switch {
		case !slices.ContainsFunc(pids, func(p int) bool { return fmt.Sprint(p) == pid }):
			wrong = append(wrong, fmt.Sprintf("key %s: a holder of version %s is named %q", s.key, version, s.Identity))
		case traced != "" && traced != pid:
			wrong = append(wrong, fmt.Sprintf("key %s: the holder %q has the trace of process %s", s.key, s.Identity, traced))
		}
	}
	w.t.Logf("leases whose holders were seen: %v", count)
	for _, what := range []string{older, newer, newer + ", traced"} {
		if count[what] < enough {
			wrong = append(wrong, fmt.Sprintf("the holders of %d leases were seen of %s", count[what], what))
		}
	}
	return wrong
}
