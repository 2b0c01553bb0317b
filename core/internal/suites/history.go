package suites

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
)

// history is what happens to two keys.
type history struct {
	mu       sync.Mutex
	keys     [2]usedKey
	overlaps int
	stale    int // writes refused
}

type usedKey struct {
	holds   []*hold
	open    map[*hold]bool // those that have not ended, as far as their holders know
	largest int64          // token that the guard has seen
	writes  []*hold        // those that were accepted
}

// hold is one lease, with the times of its acquisition.
type hold struct {
	*core.Lease
	called, returned time.Time
}

// use takes the key, writes and gives the key back until ctx ends.
func (j *history) use(ctx context.Context, t *testing.T, e *core.Engine, key int) {
	for ctx.Err() == nil {
		called := time.Now()
		lease, err := e.Acquire(ctx, core.Policy{Key: fmt.Sprint("k", key), TTL: 2 * time.Second, Wait: core.Forever})
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("acquire: %v", err)
			}
			return
		}
		h := &hold{lease, called, time.Now()}
		j.enter(&j.keys[key], h)
		length := time.Duration(mathrand.Int64N(int64(2 * time.Millisecond)))
		if mathrand.IntN(50) == 0 {
			length = time.Duration(mathrand.Int64N(int64(time.Second))) // with renewals
		}
		select {
		case <-time.After(length):
		case <-ctx.Done():
		}
		j.leave(&j.keys[key], h)
		err = lease.Release(context.WithoutCancel(ctx))
		if err != nil && !errors.Is(err, core.ErrLost) && !errors.Is(err, core.ErrNotHeld) {
			t.Errorf("release: %v", err)
		}
	}
}

func (j *history) enter(k *usedKey, h *hold) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for other := range k.open {
		if other.Err() == nil {
			j.overlaps++
		}
	}
	if k.open == nil {
		k.open = make(map[*hold]bool)
	}
	k.open[h] = true
	k.holds = append(k.holds, h)
}

// leave writes, whether or not the holder has been told of a loss. A guard refuses a token
// below the largest that it has seen.
func (j *history) leave(k *usedKey, h *hold) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(k.open, h)
	if h.Token() < k.largest {
		j.stale++
		return
	}
	k.largest = h.Token()
	k.writes = append(k.writes, h)
}

// grants is how many there were of each key.
func (j *history) grants() [2]int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return [2]int{len(j.keys[0].holds), len(j.keys[1].holds)}
}

// handOffs is how many callers in turn share one grant of the store, with tokens next to
// each other: the engine's block.
const handOffs = 1024

// verify fails the test if somebody whom the store granted the key after another one had it
// got a token that is not larger, or if the guard has accepted what it must not. A holder
// that has not been told of its loss may hand its lease on among its callers until it is,
// with tokens that follow its own: of those it returns the number. What they write is
// accepted as long as the other one has not written. Wrong are the other writes that were
// accepted although somebody who acquired later had written.
func (j *history) verify(t *testing.T) (grants, regressions, handedOn, wrong int) {
	for _, k := range j.keys {
		grants += len(k.holds)
		byReturn := slices.SortedFunc(slices.Values(k.holds), func(a, b *hold) int { return a.returned.Compare(b.returned) })
		slices.SortFunc(k.holds, func(a, b *hold) int { return cmp.Or(a.called.Compare(b.called), cmp.Compare(a.Token(), b.Token())) })
		first := make(map[int64]int64) // the smallest token of each grant
		for _, h := range k.holds {
			of := h.Token() / handOffs
			if token, ok := first[of]; !ok || h.Token() < token {
				first[of] = h.Token()
			}
		}
		late := make(map[*hold]bool) // handed on although another one had been granted the key
		var before int64             // the largest token of those granted before
		for _, h := range k.holds {
			for ; len(byReturn) > 0 && byReturn[0].returned.Before(h.called); byReturn = byReturn[1:] {
				before = max(before, byReturn[0].Token())
			}
			switch {
			case h.Token() > before:
			case h.Token() > first[h.Token()/handOffs]:
				handedOn++
				late[h] = true
			default:
				regressions++
				t.Errorf("token %d was granted after %d", h.Token(), before)
			}
		}
		var latest time.Time // call of an acquisition whose holder has written
		for _, h := range k.writes {
			if latest.After(h.returned) {
				wrong++
			}
			if h.called.After(latest) && !late[h] {
				latest = h.called
			}
		}
	}
	if wrong > 0 {
		t.Errorf("the guard accepted %d writes after those of a later holder", wrong)
	}
	return grants, regressions, handedOn, wrong
}
