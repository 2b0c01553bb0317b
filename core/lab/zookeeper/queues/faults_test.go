package queues_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/internal/testkit/zktest"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/queue/zkqueue"
)

const key = "refund:1"

func holder(token int64) queue.Holder {
	return queue.Holder{Key: key, Token: token, Worker: "worker", For: time.Hour}
}

func item(id string) queue.New { return queue.New{ID: id, Payload: []byte(id)} }

func appendAll(t *testing.T, q queue.Queue, ids ...string) (last queue.Place) {
	t.Helper()
	for _, id := range ids {
		p, err := q.Append(t.Context(), key, item(id))
		if err != nil {
			t.Fatalf("append %s: %v", id, err)
		}
		last = p
	}
	return last
}

func begin(t *testing.T, q queue.Queue, token int64, id string) *queue.Item {
	t.Helper()
	s, err := q.Begin(t.Context(), holder(token))
	if err != nil || s.Item == nil || string(s.Item.Payload) != id {
		t.Fatalf("begin with %d: %+v, %v; want item %s", token, s, err, id)
	}
	return s.Item
}

func end(t *testing.T, q queue.Queue, token int64, i *queue.Item) {
	t.Helper()
	if _, err := q.End(t.Context(), holder(token), queue.Ending{Sequence: i.Sequence, Attempt: i.Attempt}); err != nil {
		t.Fatalf("end with %d: %v", token, err)
	}
}

func TestRestartedServerKeepsItemsAndRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server of its own")
	}
	srv := zktest.Start(t, warm)
	rules := plainRules
	rules.Spacing = time.Hour
	q := open(t, newStore(t, dial(t, srv.Addr())), "refund", rules)
	place := appendAll(t, q, "1", "2")
	i := begin(t, q, 7, "1")
	srv.Restart()
	eventually(t, "an answer of the server", func() bool {
		again, err := q.Begin(t.Context(), holder(7))
		if err != nil {
			return false
		}
		if again.Item == nil || again.Item.Attempt != 1 || again.Item.Sequence != i.Sequence {
			t.Fatalf("after the restart: %+v; want the run of before", again)
		}
		return true
	})
	srv.Restart()
	eventually(t, "an answer of the server", func() bool {
		_, err := q.End(t.Context(), holder(7), queue.Ending{Sequence: i.Sequence, Attempt: 1})
		return err == nil
	})
	s, err := q.Begin(t.Context(), holder(8))
	if err != nil || s.Item != nil || s.Left != 1 || s.In < 50*time.Minute || s.In > time.Hour {
		t.Errorf("after the restart: %+v, %v; want the next run in an hour", s, err)
	}
	if again := appendAll(t, q, "2"); again.ID != place.ID || again.Sequence != place.Sequence {
		t.Errorf("an item has the place %+v after the restart; want %+v", again, place)
	}
}

// TestExpiredSessionLosesNothing cuts a process off until its session has expired.
func TestExpiredSessionLosesNothing(t *testing.T) {
	srv := zktest.Start(t, warm)
	link := zktest.NewProxy(t, srv.Addr())
	conn := dialFor(t, link.Addr(), time.Second)
	q := open(t, newStore(t, conn), "refund", plainRules)
	appendAll(t, q, "1", "2")
	i := begin(t, q, 3, "1")
	before := conn.SessionID()
	restore := link.BlackHole()
	listening := make(chan error, 1)
	go func() { listening <- q.Listen(t.Context(), func() {}, func(int, time.Duration) {}) }()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := q.End(ctx, holder(3), queue.Ending{Sequence: i.Sequence, Attempt: 1}); err == nil {
		t.Error("an end succeeds though the server cannot be reached")
	}
	eventually(t, "the end of the connection", func() bool { return conn.State() != zk.StateHasSession })
	time.Sleep(3 * time.Second / 2) // the server is through with the session as well
	restore()
	eventually(t, "another session", func() bool { return conn.State() == zk.StateHasSession && conn.SessionID() != before })
	if err := <-listening; err == nil {
		t.Error("a listener believes to hear")
	}
	end(t, q, 3, i)
	end(t, q, 4, begin(t, q, 4, "2"))
}

// TestListenerEndsWithItsConnection and does not wait for events that nobody sends.
func TestListenerEndsWithItsConnection(t *testing.T) {
	srv := zktest.Start(t, warm)
	conn := dial(t, srv.Addr())
	q := open(t, newStore(t, conn), "refund", plainRules)
	up, ended := make(chan bool, 1), make(chan error, 1)
	go func() { ended <- q.Listen(t.Context(), func() { up <- true }, func(int, time.Duration) {}) }()
	<-up
	srv.Kill()
	if err := <-ended; err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("listen ends with %v", err)
	}
}

// TestWhatOthersHaveDeletedIsDamage deletes nodes of a key behind the store's back.
func TestWhatOthersHaveDeletedIsDamage(t *testing.T) {
	srv := zktest.Start(t, warm)
	conn := dial(t, srv.Addr())
	for what, damage := range map[string]func(t *testing.T, base string, p queue.Place){
		"item": func(t *testing.T, base string, p queue.Place) {
			remove(t, conn, fmt.Sprint(base, "/k/", queue.Digest(key), "/", p.Sequence))
		},
		"entry": func(t *testing.T, base string, _ queue.Place) {
			names, _, err := conn.Children(base + "/d0")
			if err != nil || len(names) != 1 {
				t.Fatalf("%q, %v", names, err)
			}
			remove(t, conn, base+"/d0/"+names[0])
		},
		"record": func(t *testing.T, base string, _ queue.Place) {
			if _, err := conn.Set(base+"/k/"+queue.Digest(key), []byte("{}"), -1); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			q := open(t, newStore(t, conn), what, plainRules)
			damage(t, root+"/1="+what, appendAll(t, q, "1"))
			if s, err := q.Begin(t.Context(), holder(1)); !errors.Is(err, queue.ErrDamaged) {
				t.Errorf("%+v, %v; want queue.ErrDamaged", s, err)
			}
			if _, err := q.Append(t.Context(), "refund:2", item("1")); err != nil {
				t.Errorf("another key: %v", err)
			}
		})
	}
}

func remove(t *testing.T, conn *zk.Conn, path string) {
	t.Helper()
	if err := conn.Delete(path, -1); err != nil {
		t.Fatal(err)
	}
}

// TestShardHasAsManyKeysAsAnAnswerCanName appends to one key more.
func TestShardHasAsManyKeysAsAnAnswerCanName(t *testing.T) {
	srv := zktest.Start(t, warm)
	const most = (64<<10 - 1<<10) / (12 + 1 + 22 + 4)
	q := open(t, newStore(t, dial(t, srv.Addr()), zkqueue.WithMaxBuffer(64<<10)), "refund", plainRules)
	errs := make(chan error, most)
	for n := range most {
		go func() {
			_, err := q.Append(t.Context(), fmt.Sprint("refund:", n), item("1"))
			errs <- err
		}()
	}
	for range most {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if p, err := q.Append(t.Context(), "one more", item("1")); err == nil || !strings.Contains(err.Error(), "WithShards") {
		t.Errorf("an item of one key more: %+v, %v; want an error that says what to do", p, err)
	}
	if _, err := q.Append(t.Context(), "refund:0", item("2")); err != nil {
		t.Errorf("another item of a key that has some: %v", err)
	}
}

// TestIdleKeyIsForgotten opens queues until one of them has looked where the key is.
func TestIdleKeyIsForgotten(t *testing.T) {
	srv := zktest.Start(t, warm)
	conn := dial(t, srv.Addr())
	store := newStore(t, conn)
	rules := plainRules
	rules.KeepFor = queue.MinKeep
	q := open(t, store, "refund", rules)
	last := int64(0)
	for n := range int64(40) { // more than are deleted at a time
		last = appendAll(t, q, fmt.Sprint(n)).Sequence
		end(t, q, n+1, begin(t, q, n+1, fmt.Sprint(n)))
	}
	if _, err := q.Append(t.Context(), "refund:2", item("1")); err != nil {
		t.Fatal(err)
	}
	base := root + "/1=refund"
	eventually(t, "the end of the key", func() bool {
		if _, err := open(t, store, "refund", rules).Claim(t.Context(), queue.ClaimRequest{Worker: "sweeper", Max: 1, For: time.Millisecond}); err != nil {
			t.Fatal(err)
		}
		found, _, err := conn.Exists(base + "/k/" + queue.Digest(key))
		if err != nil {
			t.Fatal(err)
		}
		return !found
	})
	if data, _, err := conn.Get(base); err != nil || string(data) != fmt.Sprint(last) {
		t.Errorf("the queue remembers %s, %v; want %d", data, err, last)
	}
	if found, _, err := conn.Exists(base + "/k/" + queue.Digest("refund:2")); !found || err != nil {
		t.Errorf("a key with an item is forgotten, %v", err)
	}
	// As if the clock had been set back since.
	if _, err := conn.Set(base, fmt.Append(nil, int64(1)<<60), -1); err != nil {
		t.Fatal(err)
	}
	if p := appendAll(t, q, "1"); p.Sequence != 1<<60+1 || p.Ahead != 0 {
		t.Errorf("its next item has the place %+v", p)
	}
}

// TestEndedItemsAreDeleted counts nodes of a key that is never idle.
func TestEndedItemsAreDeleted(t *testing.T) {
	srv := zktest.Start(t, warm)
	conn := dial(t, srv.Addr())
	rules := plainRules
	rules.KeepCount = 5
	q := open(t, newStore(t, conn), "refund", rules)
	appendAll(t, q, "first")
	for n := range int64(60) {
		appendAll(t, q, fmt.Sprint(n))
		s, err := q.Begin(t.Context(), holder(n+1))
		if err != nil || s.Item == nil {
			t.Fatalf("%+v, %v", s, err)
		}
		end(t, q, n+1, s.Item)
	}
	names, _, err := conn.Children(root + "/1=refund/k/" + queue.Digest(key))
	if most := 2 * (5 + 16 + 1); err != nil || len(names) > most || len(names) < 2*6 {
		t.Errorf("%d nodes, %v; want %d at most", len(names), err, most)
	}
}
