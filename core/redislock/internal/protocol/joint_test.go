package protocol_test

import (
	"context"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// member is one of the scripts that run as one.
type member struct {
	script protocol.Script
	key    string
	args   []any
}

func (s *store) joint(members ...member) []any {
	s.t.Helper()
	var keys []string
	var args []any
	for _, m := range members {
		keys, args = append(keys, m.key), protocol.JointArgs(args, &m.script, m.args)
	}
	v, err := s.rdb.Eval(context.Background(), protocol.Joint.Source, keys, args...).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	all, _ := v.([]any)
	if len(all) != len(members) {
		s.t.Fatalf("%d scripts together are answered %q", len(members), v)
	}
	return all
}

func TestScriptThatFailsLeavesThoseItRanWithAlone(t *testing.T) {
	acquire := func(n int, key string) member { return member{protocol.Acquire, key, ask(n).Args()} }
	end := func(n int, key string) member {
		return member{protocol.End, key, protocol.EndArgs{Owner: owner(n)}.Args()}
	}
	s := start(t)
	s.do("SET", "la1:{wrong}", "text")
	all := s.joint(acquire(1, "la1:{a}"), acquire(1, "la1:{wrong}"), acquire(2, "la1:{a}"), acquire(1, "la1:{b}"), end(1, "la1:{a}"))
	want := []protocol.Status{protocol.Granted, 0, protocol.Queued, protocol.Granted}
	for i, status := range want {
		if status == 0 {
			if text, _ := protocol.Failed(all[i]); !strings.HasPrefix(text, "WRONGTYPE") {
				t.Errorf("a key of another type is answered %q", all[i])
			}
			continue
		}
		if r, err := protocol.ParseAcquire(all[i]); err != nil || r.Status != status {
			t.Errorf("acquisition %d is answered %q, %v; want %v", i, all[i], err, status)
		}
	}
	if r, err := protocol.ParseEnd(all[4]); err != nil || r.Status != protocol.Ended {
		t.Errorf("the end is answered %q, %v", all[4], err)
	}
	if st := s.state("la1:{a}"); len(st.Holders) != 1 || st.Holders[0].Owner != name(2) {
		t.Errorf("after the end the waiter should have the key: %+v", st)
	}

	s.do("CONFIG", "SET", "maxmemory", "1")
	all = s.joint(acquire(3, "la1:{new}"), end(2, "la1:{a}"), end(1, "la1:{b}"))
	if text, _ := protocol.Failed(all[0]); !strings.HasPrefix(text, "OOM") {
		t.Errorf("a new key is answered %q by a server out of memory", all[0])
	}
	for _, v := range all[1:] {
		if r, err := protocol.ParseEnd(v); err != nil || r.Status != protocol.Ended {
			t.Errorf("an end is answered %q, %v by a server out of memory", v, err)
		}
	}
}
