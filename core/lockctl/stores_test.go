package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/testservers"
)

// hostile is a key that would act on a terminal and on a pattern.
const hostile = "\x1b[2Ja*\xff key"

func TestOperatorSeesAndReleasesKeysOfEachStore(t *testing.T) {
	for name, start := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := start(t)
			first, second := service(t, store), service(t, store)
			held := take(t, first, core.Policy{Key: "stock:7"})
			take(t, first, core.Policy{Key: hostile})
			waiting, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := second.locks.Acquire(waiting, core.Policy{Key: "stock:7", TTL: time.Minute, Wait: core.Forever})
				done <- err
			}()
			var l listJSON
			for len(l.Keys) != 2 || l.Keys[1].Waiting != 1 {
				if t.Context().Err() != nil {
					t.Fatal("no list shows the keys and the waiter")
				}
				ctl(t, store, "ls", "-json").must(t, fine).read(t, &l)
			}
			if k := l.Keys[1]; k.Key != "stock:7" || !k.Held || k.Token == "" || len(k.Holders) != 1 || k.Holders[0].Mode != "exclusive" {
				t.Errorf("%+v", k)
			}
			if back, err := unquote(l.Keys[0].Key); err != nil || back != hostile {
				t.Errorf("the hostile key is listed as %q, which is read as %q, %v", l.Keys[0].Key, back, err)
			}
			shown := ctl(t, store, "ls").must(t, fine)
			if strings.Contains(shown.out, "\x1b") || !strings.Contains(shown.out, "stock:7") {
				t.Errorf("%q", shown.out)
			}
			var k keyJSON
			ctl(t, store, "inspect", "-json", l.Keys[0].Key).must(t, fine).read(t, &k)
			if !k.Held || k.Key != l.Keys[0].Key {
				t.Errorf("%+v", k)
			}
			ctl(t, store, "ls", "-json", "-prefix", "stock:").must(t, fine).read(t, &l)
			if len(l.Keys) != 1 {
				t.Errorf("%+v", l)
			}
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			ctl(t, store, "release", "stock:7").must(t, misused)
			if err := held.Check(t.Context()); err != nil {
				t.Fatalf("a release that nobody confirmed: %v", err)
			}
			var r releaseJSON
			ctl(t, store, "release", "-yes", "-json", "stock:7").must(t, fine).read(t, &r)
			<-held.Done()
			if err := held.Err(); !errors.Is(err, core.ErrLost) || r.Token == "" {
				t.Errorf("%v, token %q", err, r.Token)
			}
			ctl(t, store, "release", "-yes", "stock:7").must(t, notFound)
			ctl(t, store, "inspect", "stock:7").must(t, notFound)
		})
	}
}

func TestSomebodyAtATerminalIsAsked(t *testing.T) {
	store := stores["redis"](t)
	s := service(t, store)
	held := take(t, s, core.Policy{Key: "k"})
	for _, answer := range []string{"", "no\n", "y\n", "YES\n"} {
		r := ctlAt(t, process{in: strings.NewReader(answer), asks: true}, store, "release", "k").must(t, failed)
		if !strings.Contains(r.errs, "(yes/no)") || !strings.Contains(r.errs, "waiting") {
			t.Errorf("%q", r.errs)
		}
	}
	if err := held.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctlAt(t, process{in: strings.NewReader("yes\n"), asks: true}, store, "release", "k").must(t, fine)
	<-held.Done()
}

// answering says yes once the key has changed hands.
type answering struct {
	io.Reader
	before func()
}

func (a *answering) Read(p []byte) (int, error) {
	if a.before != nil {
		a.before()
		a.before = nil
	}
	return a.Reader.Read(p)
}

func TestHolderThatNobodyWasShownKeepsTheKey(t *testing.T) {
	store := stores["redis"](t)
	s := service(t, store)
	shown := take(t, s, core.Policy{Key: "k"})
	var next *core.Lease
	in := &answering{strings.NewReader("yes\n"), func() {
		if err := shown.Release(t.Context()); err != nil {
			t.Error(err)
		}
		next = take(t, s, core.Policy{Key: "k"})
	}}
	r := ctlAt(t, process{in: in, asks: true}, store, "release", "k").must(t, notFound)
	if !strings.Contains(r.errs, "another holder") {
		t.Errorf("%q", r.errs)
	}
	if err := next.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWatchPrintsListAfterList(t *testing.T) {
	store := stores["redis"](t)
	s := service(t, store)
	take(t, s, core.Policy{Key: "k"})
	r := ctl(t, store, "watch", "-count", "3", "-interval", "100ms", "-json").must(t, fine)
	if lines := strings.Split(strings.TrimSpace(r.out), "\n"); len(lines) != 3 || !strings.HasPrefix(lines[2], `{"time":`) {
		t.Errorf("%q", r.out)
	}
	r = ctlAt(t, process{draws: true}, store, "watch", "-count", "2", "-interval", "100ms").must(t, fine)
	if n := strings.Count(r.out, "\x1b[H\x1b[J"); n != 2 || strings.Count(r.out, "\x1b") != 4 {
		t.Errorf("%d screens: %q", n, r.out)
	}
	if r := ctl(t, store, "watch", "-count", "1"); strings.Contains(r.out, "\x1b") {
		t.Errorf("%q", r.out)
	}
}

// mute returns the address of a server that accepts connections, and says nothing. accepted has a
// word of each.
func mute(t *testing.T) (addr string, accepted chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted = make(chan struct{}, 1000)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close() //nolint:errcheck // nobody listens
			select {
			case accepted <- struct{}{}:
			default:
			}
		}
	})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
	})
	return l.Addr().String(), accepted
}

// muteStores are URLs of the kinds of stores at a server.
func muteStores(addr string) []string {
	return []string{
		"redis://" + addr, "redis+cluster://" + addr, "etcd://" + addr, "zookeeper://" + addr,
		"postgres://u@" + addr + "/x?sslmode=disable", "mysql://u@" + addr + "/x",
	}
}

func TestInterruptIsHeededWhileTheStoreHangs(t *testing.T) {
	for _, args := range [][]string{{"ls"}, {"doctor"}, {"release", "-yes", "k"}} {
		addr, accepted := mute(t)
		for _, store := range muteStores(addr) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan int, 1)
			go func() {
				getenv := func(string) string { return "" }
				ended <- run(ctx, process{out: io.Discard, errs: io.Discard, getenv: getenv}, append([]string{"-timeout", patience, "-store", store}, args...))
			}()
			<-accepted
			cancel()
			select {
			case status := <-ended:
				if status != failed {
					t.Errorf("%s %q: status %d", store, args, status)
				}
			case <-time.After(20 * time.Second): // a third of the time-out
				t.Errorf("%s %q goes on", store, args)
				<-ended
			}
			for len(accepted) > 0 {
				<-accepted
			}
		}
	}
}

func TestInterruptIsHeededAtAQuestion(t *testing.T) {
	in, writer := io.Pipe()
	defer writer.Close() //nolint:errcheck // a pipe's end never fails
	store := stores["redis"](t)
	take(t, service(t, store), core.Policy{Key: "k"})
	ctx, cancel := context.WithCancel(t.Context())
	asked := &asking{cancel: cancel}
	getenv := func(string) string { return "" }
	if status := run(ctx, process{in: in, asks: true, out: io.Discard, errs: asked, getenv: getenv}, []string{"-timeout", patience, "-store", store, "-namespace", "shop", "release", "k"}); status != failed {
		t.Errorf("status %d", status)
	}
}

// asking interrupts the program when it asks.
type asking struct{ cancel func() }

func (a *asking) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("(yes/no)")) {
		a.cancel()
	}
	return len(b), nil
}

func TestCauseOfASilentStoreIsNamed(t *testing.T) {
	named := func(store, cause string, args ...string) {
		t.Helper()
		var r result
		for _, timeout := range []string{"200ms", "2s", patience} { // a busy machine may be late to hear of the cause
			if r = ctl(t, store, append(args, "-timeout", timeout)...).must(t, failed); strings.Contains(r.out+r.errs, cause) {
				return
			}
		}
		t.Errorf("%s %q: %s%s", store, args, r.out, r.errs)
	}
	for _, args := range [][]string{{"ls"}, {"doctor", "-json"}} {
		for _, store := range muteStores("127.0.0.1:1") {
			named(store, "connection refused", args...)
		}
		addr, _ := mute(t)
		named("etcd://"+addr, addr+" accepts connections", args...)
	}
}

func TestDamagedKeyIsNamedAndTheListGoesOn(t *testing.T) {
	server := testservers.Redis(t)
	store := "redis://" + server.Addr()
	take(t, service(t, store), core.Policy{Key: "stock:D-4"})
	c := redisAt(t, server.Addr())
	junk := nameOf(t, c, "junk")
	if err := errors.Join(c.Del(t.Context(), junk).Err(), c.HSet(t.Context(), junk, "t", "abc").Err()); err != nil {
		t.Fatal(err)
	}
	var l listJSON
	ctl(t, store, "ls", "-json").must(t, fine).read(t, &l)
	if len(l.Keys) != 2 || l.Keys[0].Key != "junk" || !strings.Contains(l.Keys[0].Error, "damaged") || !l.Keys[1].Held {
		t.Errorf("%+v", l)
	}
	if r := ctl(t, store, "release", "-yes", "junk").must(t, failed); !strings.Contains(r.errs, "the key's hash is damaged; find out who writes there, and delete it") {
		t.Errorf("%s", r.errs)
	}
	diagnose(t, store, failed, map[string]string{"overwritten keys": "bad " + junk + " is damaged, its t is no number"})
}

func TestStoreThatIsDownIsAFailure(t *testing.T) {
	for _, store := range []string{"redis://user:geheim@127.0.0.1:1", "etcd://user:geheim@127.0.0.1:1", "zookeeper://user:geheim@127.0.0.1:1", "postgres://user:geheim@127.0.0.1:1/x", "mysql://user:geheim@127.0.0.1:1/x"} {
		for _, args := range [][]string{{"ls"}, {"inspect", "k"}, {"doctor"}, {"release", "-yes", "k"}} {
			r := ctl(t, store, append(args, "-timeout", "300ms")...)
			if r.status != failed || strings.Contains(r.out+r.errs, "geheim") || r.out+r.errs == "" {
				t.Errorf("%s %q: status %d\n%s%s", store, args, r.status, r.out, r.errs)
			}
		}
	}
}
