package zklock_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/zklock"
)

// TestEmptyKeysGoAway takes many keys, and finds the root empty afterwards.
func TestEmptyKeysGoAway(t *testing.T) {
	t.Parallel()
	s, _, a, _ := pair(t)
	for i := range 20 {
		a.drop(a.take(fmt.Sprintf("key %d", i), hold))
	}
	conn := raw(t, s)
	eventually(t, "the keys' nodes going away", func() bool {
		names, _, err := conn.Children(zklock.DefaultRoot)
		if err != nil {
			t.Fatal(err)
		}
		return len(names) == 0
	})
	a.drop(a.take("key 0", hold))
}

// TestKeysGoAndComeUnderLoad has the servers delete a key's node while others ask for
// it: nobody fails.
func TestKeysGoAndComeUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("works for seconds without a pause")
	}
	t.Parallel()
	_, _, a, d := pair(t)
	b := open(t, d)
	var running sync.WaitGroup
	for _, p := range []*process{a, b} {
		running.Go(func() {
			end := time.Now().Add(3 * time.Second)
			for i := 0; time.Now().Before(end); i++ {
				r := request(fmt.Sprintf("key %d", i%50), hold)
				r.Wait = true
				g, err := p.Acquire(t.Context(), r)
				if err != nil {
					t.Errorf("acquire: %v", err)
					return
				}
				if err := p.Release(t.Context(), []driver.Ending{ending(g)})[0]; err != nil {
					t.Errorf("release: %v", err)
					return
				}
			}
		})
	}
	running.Wait()
}
