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
	seen []seen // guarded by running, until it is done
	stop chan struct{}

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
				for _, h := range st.Holders {
					w.seen = append(w.seen, seen{key, h})
				}
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

// judge returns what was wrong about the holders that were seen. Those of the release before
// have no name; those of this tree have their own, and no trace but their own.
func (w *watching) judge(said *witness, pids []int) (wrong []string) {
	close(w.stop)
	w.running.Wait()
	said.mu.Lock()
	defer said.mu.Unlock()
	count := make(map[string]int)
	for _, s := range w.seen {
		version := said.keys[s.key].versions[atStore(s.Token)]
		if version == "" {
			continue // it was killed before it could say so
		}
		count[version]++
		traced := ""
		if s.TraceID.IsValid() {
			count[version+", traced"]++
			traced = fmt.Sprint(binary.BigEndian.Uint64(s.TraceID[:]))
		}
		_, pid, _ := strings.Cut(s.Identity, ":")
		switch {
		case version == older && (s.Identity != "" || traced != ""):
			wrong = append(wrong, fmt.Sprintf("key %s: a holder of version %s is named %q and has the trace of process %q", s.key, version, s.Identity, traced))
		case version == newer && !slices.ContainsFunc(pids, func(p int) bool { return fmt.Sprint(p) == pid }):
			wrong = append(wrong, fmt.Sprintf("key %s: a holder of version %s is named %q", s.key, version, s.Identity))
		case version == newer && traced != "" && traced != pid:
			wrong = append(wrong, fmt.Sprintf("key %s: the holder %q has the trace of process %s", s.key, s.Identity, traced))
		}
	}
	w.t.Logf("holders that were seen: %v", count)
	for _, what := range []string{older, newer, newer + ", traced"} {
		if count[what] < 20 {
			wrong = append(wrong, fmt.Sprintf("%d holders were seen of %s", count[what], what))
		}
	}
	return wrong
}
