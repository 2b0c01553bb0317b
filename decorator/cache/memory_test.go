package cache_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/cache/cachetest"
)

const hour = time.Hour

func mustPut(t testing.TB, s cache.Store, key string, token int64, value string, ttl time.Duration) {
	t.Helper()
	if _, err := s.Claim(t.Context(), key, token, hour); err != nil {
		t.Fatal(err)
	}
	if stored, err := s.Put(t.Context(), key, token, []byte(value), ttl); !stored || err != nil {
		t.Fatalf("put: %t, %v", stored, err)
	}
}

func mustRead(t testing.TB, s cache.Store, key, want string) {
	t.Helper()
	if e, err := s.Get(t.Context(), key); string(e.Value) != want || err != nil {
		t.Errorf("%s: read %q, %v; want %q", key, e.Value, err, want)
	}
}

func TestTheEntryUsedLongestAgoGoesFirst(t *testing.T) {
	for name, l := range map[string]cache.Limits{
		"entries":           {Entries: 3},
		"bytes":             {Bytes: 3 * (256 + 1 + 10)},
		"entries and bytes": {Entries: 3, Bytes: 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			m := cache.NewMemory(l)
			value := strings.Repeat("v", 10)
			for _, k := range []string{"a", "b", "c"} {
				mustPut(t, m, k, 1, value, hour)
			}
			mustRead(t, m, "a", value)
			mustPut(t, m, "d", 1, value, hour)
			mustRead(t, m, "b", "")
			for _, k := range []string{"a", "c", "d"} {
				mustRead(t, m, k, value)
			}
		})
	}
}

func TestBytesOfWhatHasGoneAreFree(t *testing.T) {
	m := cache.NewMemory(cache.Limits{Bytes: 2 * (256 + 1 + 100)})
	for i := range int64(100) {
		mustPut(t, m, "a", 2*i+1, strings.Repeat("v", int(i)), hour)
		if i%3 == 0 {
			if err := m.Invalidate(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		}
	}
	value := strings.Repeat("v", 100)
	mustPut(t, m, "a", 1000, value, hour)
	mustPut(t, m, "b", 1000, value, hour)
	mustRead(t, m, "a", value)
	mustRead(t, m, "b", value)
}

func TestValueLargerThanTheLimitIsNotStored(t *testing.T) {
	m := cache.NewMemory(cache.Limits{Bytes: 1000})
	mustPut(t, m, "a", 1, "v", hour)
	mustPut(t, m, "b", 1, "v", hour)
	if _, err := m.Claim(t.Context(), "a", 2, hour); err != nil {
		t.Fatal(err)
	}
	if stored, err := m.Put(t.Context(), "a", 2, make([]byte, 1000), hour); stored || err != nil {
		t.Errorf("put: %t, %v; want it refused", stored, err)
	}
	mustRead(t, m, "a", "") // rather than what was there before it
	mustRead(t, m, "b", "v")
}

func TestEvictedClaimStoresNothing(t *testing.T) {
	m := cache.NewMemory(cache.Limits{Entries: 1})
	if _, err := m.Claim(t.Context(), "a", 1, hour); err != nil {
		t.Fatal(err)
	}
	mustPut(t, m, "b", 1, "v", hour)
	if stored, err := m.Put(t.Context(), "a", 1, []byte("v"), hour); stored || err != nil {
		t.Errorf("put: %t, %v; want it refused", stored, err)
	}
}

func TestLifetimesAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := cache.NewMemory(cache.Limits{Entries: 10})
		mustPut(t, m, "a", 1, "v", time.Minute)
		time.Sleep(time.Minute - time.Nanosecond)
		if e, _ := m.Get(t.Context(), "a"); string(e.Value) != "v" || e.Left != time.Nanosecond {
			t.Errorf("%q with %v left", e.Value, e.Left)
		}
		time.Sleep(time.Nanosecond)
		mustRead(t, m, "a", "")

		if _, err := m.Claim(t.Context(), "b", 2, time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute - time.Nanosecond)
		if _, err := m.Claim(t.Context(), "b", 1, time.Minute); err == nil {
			t.Error("the claim has ended before its time")
		}
		time.Sleep(time.Nanosecond)
		if stored, _ := m.Put(t.Context(), "b", 2, nil, hour); stored {
			t.Error("put is stored after the end of its claim")
		}
		if _, err := m.Claim(t.Context(), "b", 1, time.Minute); err != nil {
			t.Errorf("the claim has not ended: %v", err)
		}
	})
}

func TestLimitsThatCannotWorkPanic(t *testing.T) {
	for _, l := range []cache.Limits{{}, {Entries: -1}, {Bytes: -1}, {Entries: 1, Bytes: -1}} {
		func() {
			defer func() {
				if fault := fmt.Sprint(recover()); !strings.HasPrefix(fault, "cache: ") {
					t.Errorf("%+v: %s; want a panic that says so", l, fault)
				}
			}()
			cache.NewMemory(l)
		}()
	}
}

func TestMemoryConforms(t *testing.T) {
	newHarness := func(*testing.T) *cachetest.Harness {
		m := cache.NewMemory(cache.Limits{Entries: 1000})
		return &cachetest.Harness{Store: m, Peer: m}
	}
	cachetest.RunInBubble(t, newHarness)
	t.Run("in real time", func(t *testing.T) { cachetest.Run(t, newHarness) })
}
