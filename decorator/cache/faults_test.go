package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/cache/rediscache"
)

// moody is a store whose answers fail while an error is set.
type moody struct {
	cache.Store
	get, claim, put, invalidate atomic.Pointer[error]
	lost                        atomic.Int64 // replies of Put to lose, after it was done
}

func fails(p *atomic.Pointer[error]) error {
	if err := p.Load(); err != nil {
		return *err
	}
	return nil
}

func (m *moody) Get(ctx context.Context, key string) (cache.Entry, error) {
	if err := fails(&m.get); err != nil {
		return cache.Entry{}, err
	}
	return m.Store.Get(ctx, key)
}

func (m *moody) Claim(ctx context.Context, key string, token int64, ttl time.Duration) (cache.Entry, error) {
	if err := fails(&m.claim); err != nil {
		return cache.Entry{}, err
	}
	return m.Store.Claim(ctx, key, token, ttl)
}

func (m *moody) Put(ctx context.Context, key string, token int64, value []byte, ttl time.Duration) (bool, error) {
	if err := fails(&m.put); err != nil {
		return false, err
	}
	stored, err := m.Store.Put(ctx, key, token, value, ttl)
	if m.lost.Add(-1) >= 0 {
		return false, errors.New("no answer")
	}
	return stored, err
}

func (m *moody) Invalidate(ctx context.Context, key string) error {
	if err := fails(&m.invalidate); err != nil {
		return err
	}
	return m.Store.Invalidate(ctx, key)
}

// moodyLibrary is a library on such a store.
func moodyLibrary(t *testing.T) (*library, *moody) {
	l := newLibrary(t)
	m := &moody{Store: l.store}
	l.store = m
	return l, m
}

var errDown = errors.New("connection refused by 10.0.0.7")

func TestAStoreThatIsDownFailsTheCallAndSparesTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, down := range map[string]func(m *moody) *atomic.Pointer[error]{
			"get":   func(m *moody) *atomic.Pointer[error] { return &m.get },
			"claim": func(m *moody) *atomic.Pointer[error] { return &m.claim },
		} {
			l, m := moodyLibrary(t)
			f := l.process(kept)
			down(m).Store(&errDown)
			_, err := f.Get(t.Context(), "a")
			if !errors.Is(err, cache.ErrUnavailable) || !errors.Is(err, errDown) {
				t.Errorf("%s: %v; want ErrUnavailable and its cause", name, err)
			}
			if strings.Contains(fmt.Sprint(err), "10.0.0.7") {
				t.Errorf("%q shows what the store said", err)
			}
			l.loaded(0)
			down(m).Store(nil)
			gets(t, f, 1)
		}
	})
}

func TestAStoreThatIsDownMakesNoStampede(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, m := moodyLibrary(t)
		var beside atomic.Int64
		l.load = func(ctx context.Context, id string) error {
			if n := beside.Add(1); n > 1 {
				t.Errorf("%d loads side by side", n)
			}
			defer beside.Add(-1)
			return takes(time.Second)(ctx, id)
		}
		c := kept
		c.Down = cache.DownLoads
		for _, p := range []*atomic.Pointer[error]{&m.get, &m.claim, &m.put} {
			p.Store(&errDown)
		}
		held, err := l.locks().Acquire(t.Context(), core.Policy{Key: "page:a"})
		if err != nil {
			t.Fatal(err)
		}
		var calls sync.WaitGroup
		for range 4 {
			f := l.process(c)
			for range 250 {
				calls.Go(func() {
					if p, err := f.Get(t.Context(), "a"); err != nil || p.ID != "a" {
						t.Errorf("%+v, %v", p, err)
					}
				})
			}
		}
		synctest.Wait() // all have come before the first load begins
		if err := held.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		calls.Wait()
		l.loaded(4)
		if took := time.Since(began); took > 4100*time.Millisecond {
			t.Errorf("4 loads of 1s, one for each process, took %v", took)
		}
	})
}

func TestAValueThatCannotBeStoredIsGivenAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, m := moodyLibrary(t)
		f := l.process(kept)
		m.put.Store(&errDown)
		gets(t, f, 1)
		gets(t, f, 2)
		m.put.Store(nil)
		gets(t, f, 3)
		gets(t, f, 3)
	})
}

func TestALostAnswerOfAPutIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, m := moodyLibrary(t)
		f := l.process(kept)
		m.lost.Store(1)
		gets(t, f, 1)
		gets(t, f, 1)
	})
}

func TestAFailedInvalidationIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, m := moodyLibrary(t)
		f := l.process(kept)
		gets(t, f, 1)
		m.invalidate.Store(&errDown)
		if err := f.Invalidate(t.Context(), "a"); !errors.Is(err, cache.ErrUnavailable) {
			t.Error(err)
		}
		gets(t, f, 1)
		if err := f.Invalidate(t.Context(), ""); !errors.Is(err, core.ErrKey) {
			t.Error(err)
		}
	})
}

func TestALoaderThatDiesIsReplacedWithinItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		// The dead process: its lease is not renewed, and its claim stands.
		held, err := l.locks().Acquire(t.Context(), core.Policy{Key: "page:a", TTL: 3 * time.Second, NoRenew: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.store.Claim(t.Context(), "page:a", held.Token(), time.Hour); err != nil {
			t.Fatal(err)
		}
		died := time.Now()
		f := l.process(kept)
		gets(t, f, 1)
		if waited := time.Since(died); waited < 2900*time.Millisecond || waited > 3100*time.Millisecond {
			t.Errorf("replaced after %v; want the TTL of 3s", waited)
		}
		gets(t, f, 1)
	})
}

func TestALoaderThatLosesItsLockDoesNotOverwriteWhoCameAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		l.load = func(context.Context, string) error { // it does not look at its context
			time.Sleep(time.Duration(4-l.loads.Load()) * time.Second) // the first one is the slowest
			return nil
		}
		a, b := l.process(kept), l.process(kept)
		var calls sync.WaitGroup
		calls.Go(func() { gets(t, a, 1) }) // it asked before the second load began
		time.Sleep(time.Second)
		if !l.driver.Expire("library/page:a") {
			t.Fatal("nobody held the key")
		}
		calls.Go(func() { gets(t, b, 2) })
		calls.Wait()
		gets(t, a, 2)
		gets(t, b, 2)
		l.loaded(2)
	})
}

func TestALoadThatItsLostLockEndedIsBegunAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		l.load = takes(2 * time.Second)
		f := l.process(kept)
		var calls sync.WaitGroup
		calls.Go(func() { gets(t, f, 2) })
		time.Sleep(time.Second)
		l.driver.Expire("library/page:a")
		calls.Wait()
		l.loaded(2)
	})
}

func TestAClaimThatIsRefusedForGoodMakesNoStampedeAndNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		// Another store of locks was in use, whose tokens were larger.
		if _, err := l.store.Claim(t.Context(), "page:a", 1<<62, time.Hour); err != nil {
			t.Fatal(err)
		}
		f := l.process(kept)
		gets(t, f, 1)
		gets(t, f, 2)
		time.Sleep(time.Hour)
		gets(t, f, 3)
		gets(t, f, 3)
	})
}

// A user of Redis without the right to publish reads, claims and loads, and stores nothing.
func TestPingSaysThatNothingCanBeKept(t *testing.T) {
	locks, err := core.New(memlock.New(), core.WithNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close() }() // nothing is held
	load := func(context.Context, string) (string, error) { return "", nil }
	for bytes, ok := range map[int64]bool{10: false, 1 << 10: true} {
		f := cache.Must(locks, core.Policy{Key: "page:{.}"}, cache.NewMemory(cache.Limits{Bytes: bytes}), load, cache.Policy{Expiry: time.Minute})
		if err := f.Ping(t.Context()); (err == nil) != ok || !ok && !errors.Is(err, cache.ErrUnavailable) {
			t.Errorf("Ping with %d bytes: %v", bytes, err)
		}
		f.Close()
		if err := f.Ping(t.Context()); !errors.Is(err, core.ErrClosed) {
			t.Errorf("Ping after Close: %v", err)
		}
	}
}

func TestStoreThatRefusesWhatIsLoadedIsToldOnceAndByPing(t *testing.T) {
	var logged bytes.Buffer
	admin := redis.NewClient(&redis.Options{Addr: testservers.Redis(t).Addr()})
	defer func() { _ = admin.Close() }()
	may := func(rules ...any) {
		t.Helper()
		if err := admin.Do(t.Context(), append([]any{"ACL", "SETUSER", "app", "on", ">secret", "+@all", "~*", "resetchannels"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	may()
	rdb := redis.NewClient(&redis.Options{Addr: admin.Options().Addr, Username: "app", Password: "secret"})
	defer func() { _ = rdb.Close() }()
	store, err := rediscache.New(rdb, "shop:cache:")
	if err != nil {
		t.Fatal(err)
	}
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"), core.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close() }()
	var loads atomic.Int64
	f := cache.Must(locks, core.Policy{Key: "price:{.}", Wait: time.Minute}, store, func(context.Context, string) (int64, error) {
		return loads.Add(1), nil
	}, cache.Policy{Expiry: time.Hour})
	defer f.Close()

	for n := range int64(3) {
		if v, err := f.Get(t.Context(), "A-1"); err != nil || v != n+1 {
			t.Errorf("Get returns %d, %v; want %d, loaded for it", v, err, n+1)
		}
	}
	if err := f.Ping(t.Context()); !errors.Is(err, cache.ErrUnavailable) {
		t.Errorf("Ping: %v; want ErrUnavailable", err)
	}
	if text := logged.String(); strings.Count(text, "cannot store what it loads") != 1 || !strings.Contains(text, "publish") || strings.Contains(text, "A-1") {
		t.Errorf("the log says\n%s; want once that it cannot store and why, without the key", text)
	}

	may("allchannels")
	if err := f.Ping(t.Context()); err != nil {
		t.Errorf("Ping with the right to publish: %v", err)
	}
	for range 2 {
		if v, err := f.Get(t.Context(), "A-1"); err != nil || v != 4 {
			t.Errorf("Get returns %d, %v; want 4, stored", v, err)
		}
	}
	if text := logged.String(); strings.Count(text, "stores again what it loads") != 1 {
		t.Errorf("the log says\n%s; want once that the store is back", text)
	}
}
