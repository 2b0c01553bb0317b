package protocol_test

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

func (s *store) acquire(key string, a protocol.AcquireArgs) (protocol.AcquireReply, error) {
	v, err := s.run(protocol.Acquire, key, a.Args())
	if err != nil {
		return protocol.AcquireReply{}, err
	}
	return protocol.ParseAcquire(v)
}

func (s *store) mustAcquire(key string, a protocol.AcquireArgs, want protocol.Status) protocol.AcquireReply {
	s.t.Helper()
	r, err := s.acquire(key, a)
	if err != nil || r.Status != want {
		s.t.Fatalf("acquire: %v, %v; want %v", r.Status, err, want)
	}
	return r
}

func (s *store) mustEnd(key string, a protocol.EndArgs, want protocol.Status) protocol.EndReply {
	s.t.Helper()
	v, err := s.run(protocol.End, key, a.Args())
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := protocol.ParseEnd(v)
	if err != nil || r.Status != want {
		s.t.Fatalf("end: %v, %v; want %v", r.Status, err, want)
	}
	return r
}

func (s *store) mustRenew(key string, n int, ttl time.Duration, want protocol.Status) {
	s.t.Helper()
	v, err := s.run(protocol.Renew, key, protocol.RenewArgs{Owner: owner(n), Token: 1, TTL: ttl}.Args())
	if err != nil {
		s.t.Fatal(err)
	}
	if r, err := protocol.ParseRenew(v); err != nil || r.Status != want {
		s.t.Fatalf("renew: %v, %v; want %v", r.Status, err, want)
	}
}

// calls returns how often the server has run each command inside and outside of
// scripts since the last time.
func (s *store) calls() map[string]int {
	s.t.Helper()
	info, ok := s.do("INFO", "commandstats").(string)
	if !ok {
		s.t.Fatal("INFO is no text")
	}
	out := make(map[string]int)
	for _, m := range regexp.MustCompile(`cmdstat_([a-z]+)[^:]*:calls=(\d+)`).FindAllStringSubmatch(info, -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			s.t.Fatal(err)
		}
		switch m[1] {
		case "info", "config", "hello", "client", "eval", "script", "command":
		default:
			out[m[1]] += n
		}
	}
	s.do("CONFIG", "RESETSTAT")
	return out
}

func total(calls map[string]int) int {
	n := 0
	for _, c := range calls {
		n += c
	}
	return n
}

func TestCostDoesNotGrowWithTheQueue(t *testing.T) {
	s := start(t)
	cost := func(key string, waiters int) []int {
		s.mustAcquire(key, ask(1), protocol.Granted)
		for n := 2; n < 2+waiters; n++ {
			s.mustAcquire(key, ask(n), protocol.Queued)
		}
		s.calls()
		var out []int
		note := func() { out = append(out, total(s.calls())) }
		s.mustAcquire(key, ask(9000), protocol.Queued)
		note()
		s.mustAcquire(key, again(9000), protocol.Queued)
		note()
		s.mustAcquire(key, again(2), protocol.Queued)
		note()
		s.mustEnd(key, protocol.EndArgs{Owner: owner(4)}, protocol.Withdrawn)
		note()
		s.mustRenew(key, 1, time.Minute, protocol.Renewed)
		note()
		s.mustEnd(key, protocol.EndArgs{Owner: owner(1)}, protocol.Ended)
		note()
		return out
	}
	few, many := cost("la2:{00}:few", 10), cost("la2:{00}:many", 1000)
	for i := range few {
		if few[i] != many[i] {
			t.Errorf("commands inside the scripts: %v with 10 waiters, %v with 1000", few, many)
			break
		}
	}
}

func TestOnlyWhatIsNeededStays(t *testing.T) {
	s := start(t)
	key := protocol.Key("k")
	stays := func(what string, want time.Duration) {
		t.Helper()
		ttl, _ := s.do("PTTL", key).(int64)
		if got := time.Duration(ttl) * time.Millisecond; got > want || got < want-30*time.Second {
			t.Errorf("%s the key stays for %v, want about %v", what, got, want)
		}
	}
	const gone = -2 * time.Millisecond // what PTTL says
	s.mustAcquire(key, ask(1), protocol.Granted)
	stays("held by one", 10*second)
	s.mustEnd(key, protocol.EndArgs{Owner: owner(1)}, protocol.Ended)
	stays("after its end", gone)
	s.mustAcquire(key, ask(1), protocol.Granted)
	s.mustAcquire(key, ask(2), protocol.Queued)
	stays("waited for", 10*second+protocol.Linger)
	s.mustRenew(key, 1, time.Hour, protocol.Renewed)
	stays("renewed", time.Hour+protocol.Linger)
	s.mustEnd(key, protocol.EndArgs{Owner: owner(1)}, protocol.Ended)
	s.mustEnd(key, protocol.EndArgs{Owner: owner(2)}, protocol.Ended)
	stays("after a hand-over", gone)
	s.mustAcquire(key, ask(1), protocol.Granted)
	s.mustEnd(key, protocol.EndArgs{Owner: owner(1), Keep: time.Minute}, protocol.Ended)
	stays("kept", time.Minute)
	s.mustEnd(key, protocol.EndArgs{Owner: owner(3), Bury: true}, protocol.NotMine)
	stays("with a buried owner", protocol.Linger)
	if n := s.do("XLEN", protocol.Stream(key)); n != int64(4) {
		t.Errorf("the stream has %v entries, want one for each grant", n)
	}
}

func TestStreamDoesNotGrow(t *testing.T) {
	s := start(t)
	key := protocol.Key("k")
	_, err := s.rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for range 10_000 {
			p.Do(t.Context(), "XADD", protocol.Stream(key), "MAXLEN", "~", "1", "*", "", "")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	size, _ := s.do("MEMORY", "USAGE", protocol.Stream(key)).(int64)
	if t.Log(size, "bytes"); size*protocol.Shards > 2_000_000 {
		t.Errorf("a stream takes %d bytes, so that %d take more than 2 MB", size, protocol.Shards)
	}
}

func TestLeaseThatIsHeldByStringOfAnotherLibraryIsRefused(t *testing.T) {
	s := start(t)
	key := protocol.Key("k")
	s.do("SET", key, "Zm9yZWlnbiB2YWx1ZSBhbmQgbG9uZw==", "PX", "60000")
	if _, err := s.acquire(key, ask(1)); err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE") {
		t.Errorf("%v", err)
	}
	if v := s.do("GET", key); v != "Zm9yZWlnbiB2YWx1ZSBhbmQgbG9uZw==" {
		t.Errorf("it is %q now", v)
	}
}

func TestTokenIsTheServersTime(t *testing.T) {
	s := start(t)
	at := func() int64 {
		v, err := s.rdb.Time(context.Background()).Result()
		if err != nil {
			t.Fatal(err)
		}
		return v.UnixMicro()
	}
	before := at()
	r := s.mustAcquire("la2:{00}:k", ask(1), protocol.Granted)
	if after := at(); r.Token < before-before%1000 || r.Token > after {
		t.Errorf("token %d, want one of [%d, %d]", r.Token, before, after)
	}
}

func TestTokensAreExactUpToTheirLargest(t *testing.T) {
	s := start(t)
	const key = "la2:{00}:k"
	s.do("XADD", protocol.Stream(key), "9007199254740-989", "", "")
	for _, want := range []int64{9007199254740990, 9007199254740991} {
		r := s.mustAcquire(key, ask(int(want%1000)), protocol.Granted)
		if r.Token != want {
			t.Errorf("token %d, want %d", r.Token, want)
		}
		s.mustEnd(key, protocol.EndArgs{Owner: owner(int(want % 1000))}, protocol.Ended)
	}
}

func TestOutOfMemoryRefusesOnlyWhoWantsSomethingNew(t *testing.T) {
	s := start(t)
	const key = "la2:{00}:k"
	s.mustAcquire(key, ask(1), protocol.Granted)
	s.mustAcquire(key, ask(2), protocol.Queued)
	const alone, passed = "la2:{00}:alone", "la2:{00}:passed"
	s.mustAcquire(alone, ask(1), protocol.Granted)
	s.mustAcquire(passed, ask(1), protocol.Granted)
	s.do("CONFIG", "SET", "maxmemory", "1")
	s.mustRenew(alone, 1, 11*second, protocol.Renewed)
	s.mustEnd(alone, protocol.EndArgs{Owner: owner(1)}, protocol.Ended)
	if n := s.do("EXISTS", alone); n != int64(0) {
		t.Error("the key stays after the end of a lease that nobody waits for")
	}
	if r := s.mustEnd(passed, protocol.EndArgs{Owner: owner(1), Next: next(2)}, protocol.Ended); r.Next != protocol.Granted {
		t.Errorf("the next owner is not granted what the ended one had: %+v", r)
	}
	if _, err := s.acquire(alone, ask(3)); err == nil || !strings.HasPrefix(err.Error(), "OOM") {
		t.Errorf("a free key is granted: %v", err)
	}
	if _, err := s.acquire("la2:{00}:other", ask(3)); err == nil || !strings.HasPrefix(err.Error(), "OOM") {
		t.Errorf("a new key is granted: %v", err)
	}
	if _, err := s.acquire(key, ask(3)); err == nil || !strings.HasPrefix(err.Error(), "OOM") {
		t.Errorf("a new place is given: %v", err)
	}
	s.mustRenew(key, 1, time.Minute, protocol.Renewed)
	s.mustAcquire(key, ask(1), protocol.Granted)
	s.mustAcquire(key, again(2), protocol.Queued)
	s.mustEnd(key, protocol.EndArgs{Owner: owner(1)}, protocol.Ended)
	if st := s.state(key); len(st.Holders) != 1 || st.Holders[0].Owner != name(2) {
		t.Errorf("after the end: %+v", st)
	}
	s.mustEnd(key, protocol.EndArgs{Owner: owner(2)}, protocol.Ended)
	s.mustEnd("la2:{00}:other", protocol.EndArgs{Owner: owner(3)}, protocol.Absent)
}

func TestDeniedPublishUndoesNothing(t *testing.T) {
	s := start(t)
	const key = "la2:{00}:k"
	s.mustAcquire(key, ask(1), protocol.Granted)
	s.do("ACL", "SETUSER", "default", "resetchannels")
	s.mustAcquire(key, ask(2), protocol.Queued)
	s.mustEnd(key, protocol.EndArgs{Owner: owner(1)}, protocol.Ended)
	s.mustAcquire(key, again(2), protocol.Granted)
}

func TestGrantIsPushed(t *testing.T) {
	s := start(t)
	key := protocol.Key("any \x00 byte: }{%\r\n\xff:")
	sub := s.rdb.Subscribe(context.Background(), channel(2))
	defer func() {
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := sub.Receive(context.Background()); err != nil {
		t.Fatal(err)
	}
	s.mustAcquire(key, ask(1), protocol.Granted)
	s.mustAcquire(key, ask(2), protocol.Queued)
	s.mustEnd(key, protocol.EndArgs{Owner: owner(1)}, protocol.Ended)
	m, err := sub.ReceiveTimeout(context.Background(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	message, ok := m.(*redis.Message)
	if !ok {
		t.Fatalf("received %T", m)
	}
	p, err := protocol.ParsePush(message.Payload)
	if err != nil {
		t.Fatal(err)
	}
	r := s.mustAcquire(key, again(2), protocol.Granted)
	want := protocol.Push{Kind: protocol.PushGrant, Key: key, Owner: owner(2), Token: r.Token}
	if p != want {
		t.Errorf("push %+v, want %+v", p, want)
	}
}

func TestScriptsAreNamedAsTheServerNamesThem(t *testing.T) {
	s := start(t)
	for _, script := range protocol.Scripts() {
		sha, err := s.rdb.ScriptLoad(context.Background(), script.Source).Result()
		if err != nil {
			t.Fatalf("%s: %v", script.Name, err)
		}
		if sha != script.SHA {
			t.Errorf("%s is %s, the server says %s", script.Name, script.SHA, sha)
		}
	}
}
