package main

import (
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/decorator/queue"
)

// park leaves a dead item at the head of a key, and another one behind it.
func park(t *testing.T, store string, s *session, key string) (id string) {
	t.Helper()
	all, err := s.queues()
	if err != nil {
		t.Fatal(err)
	}
	q, err := all.Open("refund", queue.Rules{Attempts: 1, OnDead: queue.Hold, MaxLength: 10, KeepFor: time.Hour, KeepCount: 10})
	if err != nil {
		t.Fatal(err)
	}
	place, err := q.Append(t.Context(), key, queue.New{ID: "first"})
	if err == nil {
		_, err = q.Append(t.Context(), key, queue.New{ID: "second"})
	}
	if err != nil {
		t.Fatal(err)
	}
	h := queue.Holder{Key: key, Token: 1, Worker: "w", For: time.Minute}
	step, err := q.Begin(t.Context(), h)
	if err != nil || step.Item == nil {
		t.Fatalf("%+v, %v", step, err)
	}
	if _, err = q.End(t.Context(), h, queue.Ending{Sequence: step.Item.Sequence, Attempt: step.Item.Attempt, Outcome: queue.Dead}); err != nil {
		t.Fatal(err)
	}
	return place.ID
}

func TestParkedItemsAreListedAndGoOn(t *testing.T) {
	for _, name := range []string{"redis", "postgres", "mariadb"} {
		t.Run(name, func(t *testing.T) {
			store := stores[name](t)
			s := service(t, store)
			s.queuePrefix, s.shards, s.keepFor, s.keepCount = "shop:queue:", 1, time.Hour, 10
			at := func(status int, args ...string) result {
				t.Helper()
				if name == "redis" {
					args = append(args, "-queue-prefix", s.queuePrefix)
				}
				return ctl(t, store, append([]string{"queue"}, args...)...).must(t, status)
			}
			for _, how := range []string{"resume", "drop", "repeat"} {
				id := park(t, store, s, "refund:"+how)
				var q queueJSON
				at(fine, "ls", "refund", "-json").read(t, &q)
				if q.Parked != 1 || len(q.Keys) != 1 || q.Keys[0].Key != "refund:"+how || q.Keys[0].Item != id {
					t.Fatalf("%+v", q)
				}
				if shown := at(fine, "ls", "refund").out; !strings.Contains(shown, "parked keys: 1") || !strings.Contains(shown, id) {
					t.Errorf("%s", shown)
				}
				var st statusJSON
				at(fine, "status", "refund", id, "-json").read(t, &st)
				if !st.Parked || st.State != "dead" {
					t.Errorf("%+v", st)
				}
				at(misused, how, "refund", id)
				at(fine, how, "refund", id, "-yes")
				at(notFound, how, "refund", id, "-yes")
				if how == "drop" {
					at(notFound, "status", "refund", id)
				}
			}
			at(notFound, "status", "refund", "no-such-item")
		})
	}
}
