package main

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// witness sees who holds which key. Workers tell it after each grant and before each release,
// and wait for its answer, so that what it has for held is held.
type witness struct {
	listener net.Listener
	serving  sync.WaitGroup

	mu        sync.Mutex
	over      bool
	keys      map[string]*key
	faults    []string
	crossed   map[string][]time.Duration // by the two versions: how long hand-overs took
	afterKill []time.Duration            // how long keys stayed taken whose holder was killed
}

type key struct {
	holders   map[*caller]time.Time
	asking    map[*caller]time.Time
	holds     map[string]int // by version
	largest   int64          // token
	exclusive int64          // the largest token of those who held alone
	left      *caller        // who held alone, and was the last to leave
	freed     time.Time      // when

	versions map[int64]string // that had the leases, by their tokens at the store
}

// caller is one caller of a worker.
type caller struct {
	version string
	key     *key
	name    string // of the key
	mode    string
	limit   int
	token   int64
	lowered bool
	killed  bool
}

func newWitness(t *testing.T) *witness {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &witness{listener: l, keys: make(map[string]*key), crossed: make(map[string][]time.Duration)}
	w.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // the test is over
			}
			w.serving.Go(func() { w.serve(conn) })
		}
	})
	t.Cleanup(func() { // workers have ended by then
		_ = l.Close()
		w.serving.Wait()
	})
	return w
}

// stop has callers end who ask.
func (w *witness) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
}

func (w *witness) serve(conn net.Conn) {
	defer conn.Close() //nolint:errcheck // nobody reads any more
	c := &caller{}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if _, err := fmt.Fprintln(conn, w.hear(c, strings.Fields(lines.Text()))); err != nil {
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.key != nil && !c.key.holders[c].IsZero() { // it was killed
		c.killed = true
		w.leave(c)
	}
	if c.key != nil {
		delete(c.key.asking, c)
	}
}

// hear takes in what a caller says, and returns the answer.
func (w *witness) hear(c *caller, words []string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch what := words[0]; {
	case what == "hello" && len(words) == 5:
		c.version, c.name, c.mode = words[1], words[2], words[3]
		c.limit, _ = strconv.Atoi(words[4])
		c.key = w.keys[c.name]
		if c.key == nil {
			c.key = &key{holders: make(map[*caller]time.Time), asking: make(map[*caller]time.Time), holds: make(map[string]int), versions: make(map[int64]string)}
			w.keys[c.name] = c.key
		}
	case c.key == nil:
		w.fault("somebody says %q before hello", words)
	case what == "ask":
		if w.over {
			return "stop"
		}
		c.key.asking[c] = time.Now()
	case what == "enter" && len(words) == 2:
		c.token, _ = strconv.ParseInt(words[1], 10, 64)
		w.enter(c)
	case what == "lower":
		c.lowered = true
	case what == "leave":
		w.leave(c)
	default:
		w.fault("key %s, version %s: %s", c.name, c.version, strings.Join(words, " "))
	}
	return "ok"
}

func (w *witness) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

func (w *witness) enter(c *caller) {
	k, now := c.key, time.Now()
	for other := range k.holders {
		if c.mode == "exclusive" || other.mode == "exclusive" && !other.lowered {
			w.fault("key %s: version %s, %s, with token %d beside version %s, %s, with token %d", c.name, c.version, c.mode, c.token, other.version, other.mode, other.token)
		}
	}
	if c.mode == "semaphore" && len(k.holders) >= c.limit {
		w.fault("key %s: %d hold the semaphore of %d", c.name, len(k.holders)+1, c.limit)
	}
	above := k.exclusive
	if c.mode == "exclusive" {
		above = k.largest
		if k.left != nil {
			took := now.Sub(later(k.freed, k.asking[c]))
			if k.left.killed {
				w.afterKill = append(w.afterKill, now.Sub(k.freed))
			} else if k.left.version != c.version && c.name != "kept" { // that one waits for MinHold
				w.crossed[k.left.version+" to "+c.version] = append(w.crossed[k.left.version+" to "+c.version], took)
			}
		}
		k.exclusive = c.token
	}
	if c.token <= above {
		w.fault("key %s: version %s has token %d after %d", c.name, c.version, c.token, above)
	}
	delete(k.asking, c)
	k.largest, k.left = max(k.largest, c.token), nil
	k.holders[c] = now
	k.holds[c.version]++
	k.versions[atStore(c.token)] = c.version
}

// atStore is the store's token of the lease that a caller has that one on: callers who share a
// lease or hand it on have up to 1024 of their own.
func atStore(token int64) int64 { return token / 1024 }

func (w *witness) leave(c *caller) {
	k := c.key
	delete(k.holders, c)
	k.left = nil
	if c.mode == "exclusive" && !c.lowered {
		k.left, k.freed = c, time.Now()
	}
	c.lowered = false
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// judge returns what was wrong, and says what there was.
func (w *witness) judge(t *testing.T, versions []string, patience, prompt time.Duration) (wrong []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wrong = slices.Clone(w.faults)
	for name, k := range w.keys {
		total := 0
		for _, n := range k.holds {
			total += n
		}
		t.Logf("key %s: %d holds, %v", name, total, k.holds)
		for _, v := range versions {
			// Where holds are few, that each has one is all that there is to see.
			if share := total / 5; k.holds[v] < max(1, share) {
				wrong = append(wrong, fmt.Sprintf("key %s: version %s has %d of %d holds", name, v, k.holds[v], total))
			}
		}
	}
	for i, from := range versions {
		way := from + " to " + versions[1-i]
		took := w.crossed[way]
		slices.Sort(took)
		if len(took) < 10 {
			wrong = append(wrong, fmt.Sprintf("%s: %d hand-overs were seen", way, len(took)))
			continue
		}
		part := func(percent int) time.Duration { return took[(len(took)-1)*percent/100].Round(time.Microsecond) }
		t.Logf("%s: %d hand-overs, half of them within %v, 90%% within %v, 99%% within %v, all within %v", way, len(took), part(50), part(90), part(99), part(100))
		if part(90) > prompt && prompt > 0 {
			wrong = append(wrong, fmt.Sprintf("%s: 90%% of hand-overs take up to %v, as if waiters found out by polls", way, part(90)))
		}
	}
	for _, took := range w.afterKill {
		t.Logf("the next holder came %v after a kill", took.Round(time.Millisecond))
		if took > patience {
			wrong = append(wrong, fmt.Sprintf("the next holder came %v after a kill, want at most %v", took, patience))
		}
	}
	return wrong
}

// prompt is what 90% of the hand-overs take at most. A waiter whom no push reaches finds out
// by a poll, within a second.
const prompt = 150 * time.Millisecond
