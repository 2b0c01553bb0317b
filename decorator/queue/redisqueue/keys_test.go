package redisqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator/queue"
)

// layout has the keys of a queue in Redis, as patterns that find one each.
var layout = map[string]string{
	"shard": "*}h", "due": "*}d", "oldest": "*}o", "parked": "*}p",
	"state": "*}k:" + queue.Digest("k"), "items": "*}q:" + queue.Digest("k"), "what ended": "*}i:" + queue.Digest("k"),
}

// lose deletes what a pattern finds, and reports whether there was anything.
func lose(t *testing.T, c *redis.Client, pattern string) bool {
	t.Helper()
	keys, err := c.Keys(t.Context(), pattern).Result()
	if err != nil || len(keys) > 1 {
		t.Fatalf("keys %q, %v", keys, err)
	}
	if len(keys) == 0 {
		return false
	}
	if err := c.Del(t.Context(), keys[0]).Err(); err != nil {
		t.Fatal(err)
	}
	return true
}

// world runs what is due, as workers do, and notes what has run and who was told of damage.
type world struct {
	t       *testing.T
	q       queue.Queue
	token   int64
	runs    map[string]int
	damaged int
}

func (w *world) note(err error) bool {
	w.t.Helper()
	if errors.Is(err, queue.ErrDamaged) {
		w.damaged++
	} else if err != nil {
		w.t.Fatal(err)
	}
	return err == nil
}

func (w *world) append(key string, ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		_, err := w.q.Append(w.t.Context(), key, queue.New{ID: id, Payload: []byte(key + "/" + id)})
		w.note(err)
	}
}

// work runs all items that are due. An item called "dead" dies.
func (w *world) work() {
	w.t.Helper()
	for range 10 {
		c, err := w.q.Claim(w.t.Context(), queue.ClaimRequest{Worker: "w", Max: 100, For: time.Hour})
		if !w.note(err) {
			continue
		}
		if len(c.Keys) == 0 {
			return
		}
		for _, key := range c.Keys {
			w.token++
			step, err := w.q.Begin(w.t.Context(), holder(key, w.token))
			for w.note(err) && step.Item != nil {
				step, err = w.run(key, step)
			}
		}
	}
}

func (w *world) run(key string, step queue.Step) (queue.Step, error) {
	w.runs[string(step.Item.Payload)]++
	e := queue.Ending{Sequence: step.Item.Sequence, Attempt: step.Item.Attempt, Next: true}
	if strings.HasSuffix(string(step.Item.Payload), "/dead") {
		e.Outcome = queue.Dead
	}
	return w.q.End(w.t.Context(), holder(key, w.token), e)
}

// TestLossOfAnyKeyLosesNoItemAndRepeatsNoneSilently deletes each key of the layout in turn, with items that
// wait, while one runs, when all have ended, and with a parked key.
func TestLossOfAnyKeyLosesNoItemAndRepeatsNoneSilently(t *testing.T) {
	c := client(t, testservers.Redis(t), redis.Options{})
	for what, pattern := range layout {
		for _, when := range []string{"waiting", "running", "idle", "parked"} {
			t.Run(what+", "+when, func(t *testing.T) {
				if err := c.FlushAll(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
				hold := rules
				hold.OnDead, hold.KeepCount = queue.Hold, 1000
				w := &world{t: t, q: open(t, newStore(t, c), hold), runs: make(map[string]int)}
				w.append("k", "0")
				w.work()
				w.append("other", "1", "2")
				w.append("quiet", "1")
				var running queue.Step
				switch when {
				case "parked":
					w.append("k", "dead", "1", "2")
					w.work()
				case "idle":
					w.append("k", "1", "2")
					w.work()
				case "running":
					w.append("k", "1", "2")
					if _, err := w.q.Claim(t.Context(), queue.ClaimRequest{Worker: "w", Max: 100, For: 100 * time.Millisecond}); err != nil {
						t.Fatal(err)
					}
					w.token++
					var err error
					if running, err = w.q.Begin(t.Context(), holder("k", w.token)); err != nil || running.Item == nil {
						t.Fatalf("%+v, %v", running, err)
					}
				default:
					w.append("k", "1", "2")
				}
				if !lose(t, c, pattern) {
					t.Skipf("there is no such key")
				}
				if when == "running" {
					step, err := w.run("k", running)
					for w.note(err) && step.Item != nil {
						step, err = w.run("k", step)
					}
					time.Sleep(110 * time.Millisecond) // the claims on the others end
				}
				w.append("quiet", "2") // while there is an index, but not all of it
				w.work()
				if when == "parked" {
					all, err := w.q.Parked(t.Context(), 10)
					if w.note(err) && len(all) == 1 {
						w.note(w.q.Resume(t.Context(), all[0].ID, queue.GoOn))
						w.work()
					} else if w.damaged == 0 {
						t.Errorf("parked are %+v", all)
					}
				}
				for _, key := range []string{"k", "other", "quiet"} {
					w.append(key, "1", "2", "3") // again, but for one
				}
				w.work()
				s, err := w.q.Stats(t.Context())
				if w.note(err) && w.damaged == 0 && s != (queue.Stats{}) {
					t.Errorf("%+v are left; want nothing", s)
				}
				for item, n := range w.runs {
					if n > 1 && w.damaged == 0 {
						t.Errorf("%s has run %d times, and nobody was told", item, n)
					}
				}
				for _, key := range []string{"k", "other", "quiet"} {
					for _, id := range []string{"1", "2", "3"} {
						if w.runs[key+"/"+id] == 0 && (key != "k" || w.damaged == 0) {
							t.Errorf("%s/%s has not run, and nobody was told", key, id)
						}
					}
				}
				if slices.Contains([]string{"shard", "due", "oldest", "parked"}, what) && w.damaged > 0 {
					t.Errorf("the key has all its parts, and %d operations say it is damaged", w.damaged)
				}
				t.Logf("runs %v, %d told", w.runs, w.damaged)
			})
		}
	}
}

// TestIndexOfManyKeysIsMadeAnewInSteps: also if who began to has gone.
func TestIndexOfManyKeysIsMadeAnewInSteps(t *testing.T) {
	c := client(t, testservers.Redis(t), redis.Options{})
	w := &world{t: t, q: open(t, newStore(t, c), rules), runs: make(map[string]int)}
	const keys = 1000
	for n := range keys {
		w.append(fmt.Sprint("k", n), "1", "2")
	}
	if !lose(t, c, "*}h") || !lose(t, c, "*}d") {
		t.Fatal("there is no index")
	}
	gone, cancel := context.WithCancel(t.Context())
	c.AddHook(after{"zscan", cancel})
	if _, err := w.q.Claim(gone, queue.ClaimRequest{Worker: "gone", Max: 1, For: time.Millisecond}); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v; want context.Canceled", err)
	}
	time.Sleep(2 * time.Millisecond)
	var named []string
	for range keys {
		s, err := w.q.Claim(t.Context(), queue.ClaimRequest{Worker: "w", Max: keys, For: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if named = append(named, s.Keys...); len(s.Keys) == 0 {
			break
		}
	}
	if len(named) != keys {
		t.Errorf("%d keys are due; want %d", len(named), keys)
	}
	if s, err := w.q.Stats(t.Context()); err != nil || s.Length != 2*keys || s.Oldest == 0 {
		t.Errorf("%+v, %v; want %d items", s, err, 2*keys)
	}
}

// after is a hook that calls f after a command.
type after struct {
	command string
	f       func()
}

func (a after) DialHook(next redis.DialHook) redis.DialHook { return next }
func (a after) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == a.command {
			a.f()
		}
		return err
	}
}

func (a after) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestCascadeRemovesABoundedNumberInAScript counts what the server is asked to remove.
func TestCascadeRemovesABoundedNumberInAScript(t *testing.T) {
	c := client(t, testservers.Redis(t), redis.Options{})
	cascade := rules
	cascade.OnDead, cascade.MaxLength, cascade.Attempts = queue.Cascade, 10000, 1
	q := open(t, newStore(t, c), cascade)
	const many, bound = 2000, 501
	for n := range many {
		mustAppend(t, q, "k", fmt.Sprint(n))
	}
	removed := func() (calls int) {
		stats, err := c.InfoMap(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Sscanf(stats["Commandstats"]["cmdstat_lpop"], "calls=%d", &calls)
		return calls
	}
	step, err := q.Begin(t.Context(), holder("k", 1))
	if err != nil {
		t.Fatal(err)
	}
	step, err = q.End(t.Context(), holder("k", 1), queue.Ending{Sequence: step.Item.Sequence, Attempt: 1, Outcome: queue.Dead, Next: true})
	if err != nil || step.Died != many {
		t.Fatalf("%+v, %v; want %d that died", step, err, many)
	}
	before := 0
	for token := int64(2); before < many; token++ {
		now := removed()
		if now == before || now-before > bound {
			t.Fatalf("a script has removed %d items; want 1 to %d", now-before, bound)
		}
		before = now
		if _, err := q.Begin(t.Context(), holder("k", token)); err != nil {
			t.Fatal(err)
		}
	}
	if keys, err := c.Keys(t.Context(), "*}q:*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("left are %q, %v", keys, err)
	}
}

// TestItemThatIsAppendedAgainDuringACascadeRunsOnce appends an ID again that has died with another and is not removed
// yet, although it need not be known any longer.
func TestItemThatIsAppendedAgainDuringACascadeRunsOnce(t *testing.T) {
	c := client(t, testservers.Redis(t), redis.Options{})
	cascade := rules
	cascade.OnDead, cascade.MaxLength, cascade.Attempts, cascade.KeepFor, cascade.KeepCount = queue.Cascade, 5000, 1, time.Second, 5000
	q := open(t, newStore(t, c), cascade)
	const many, again = 1500, "1400"
	for n := range many {
		mustAppend(t, q, "k", fmt.Sprint(n))
	}
	step, err := q.Begin(t.Context(), holder("k", 1))
	if err != nil {
		t.Fatal(err)
	}
	if step, err = q.End(t.Context(), holder("k", 1), queue.Ending{Sequence: step.Item.Sequence, Attempt: 1, Outcome: queue.Dead}); err != nil || step.Died != many {
		t.Fatalf("%+v, %v; want %d that died", step, err, many)
	}
	ended := time.Now()
	for time.Since(ended) <= cascade.KeepFor { // until then the ID is known
		time.Sleep(time.Until(ended.Add(cascade.KeepFor + time.Millisecond)))
	}
	place := mustAppend(t, q, "k", again)
	for token := int64(2); step.Item == nil; token++ {
		if token > many {
			t.Fatal("the item is never begun")
		}
		if step, err = q.Begin(t.Context(), holder("k", token)); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := q.Status(t.Context(), place.ID); err != nil || s.State == queue.GivenUp {
		t.Errorf("an item that runs is %v, %v", s.State, err)
	}
	if twice := mustAppend(t, q, "k", again); twice.Sequence != place.Sequence || step.Item.Sequence != place.Sequence {
		t.Errorf("one ID has the places %d and %d, and %d runs", place.Sequence, twice.Sequence, step.Item.Sequence)
	}
}
