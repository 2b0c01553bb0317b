package zkqueue

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/decorator/queue"
)

// plain is the record of a key with two items, of which the first one has been begun.
func plain() *line {
	return &line{
		Key: []byte("refund:\xff"), Floor: 1000, Sequence: 8, Head: 7, HeadID: []byte("r-7"), Attempts: 2, Token: 1<<62 + 1, Running: true,
		Begun: atWrite, NextIn: 51, Entry: entry{claimed, 5000, queue.Digest("refund:\xff")}.String(), Pruned: 3,
	}
}

func TestRecordTakesItsTimesFromItsWrite(t *testing.T) {
	for _, tt := range []struct {
		what         string
		next         int64
		written, now int64
		wantNext     int64
	}{
		{"as time goes by", 0, 1500, 1500, 1551},
		{"the leader's clock was set back", 0, 900, 1000, 1051},
		{"an earlier wait is longer", 2000, 1500, 1500, 2000},
		{"an earlier wait is shorter", 1520, 1500, 1500, 1551},
	} {
		l := plain()
		l.Next = tt.next
		got, err := parseLine(l.bytes(), tt.written)
		if err != nil {
			t.Fatal(err)
		}
		if got.now != tt.now || got.Begun != tt.now || got.Floor != tt.now || got.Next != tt.wantNext || got.NextIn != 0 {
			t.Errorf("%s: %+v; want it at %d, and the next run at %d", tt.what, got, tt.now, tt.wantNext)
		}
	}
}

func TestRecordThatIsNoneIsDamage(t *testing.T) {
	for what, change := range map[string]func(l *line){
		"of another key":        func(l *line) { l.Key = []byte("refund:2") },
		"without a key":         func(l *line) { l.Key = nil },
		"without an entry":      func(l *line) { l.Entry = "" },
		"before the first item": func(l *line) { l.Head = 0 },
		"behind the last item":  func(l *line) { l.Head = l.Sequence + 2 },
		"of deleted items":      func(l *line) { l.Pruned = l.Head },
	} {
		l := plain()
		change(l)
		if _, err := parseLine(l.bytes(), 1); !errors.Is(err, queue.ErrDamaged) {
			t.Errorf("a record %s: %v; want queue.ErrDamaged", what, err)
		}
	}
	for _, text := range []string{"", "\n", "{}", "{}\n", `{"id":1}` + "\n", `{"id":"MQ=="}`} {
		if _, err := parseItem([]byte(text), &zk.Stat{}); !errors.Is(err, queue.ErrDamaged) {
			t.Errorf("the item %q: %v; want queue.ErrDamaged", text, err)
		}
	}
}

func TestItemComesBack(t *testing.T) {
	i := &item{ID: []byte("\xff\n"), Trace: []byte("\x00"), Floor: 7, payload: []byte("a\nb\n")}
	got, err := parseItem(i.bytes(), &zk.Stat{Mtime: 5})
	if err != nil || !bytes.Equal(got.payload, i.payload) || !bytes.Equal(got.ID, i.ID) || !bytes.Equal(got.Trace, i.Trace) || got.written != 7 {
		t.Errorf("%+v, %v; want %+v, appended at 7", got, err, i)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(plain().bytes(), int64(5))
	f.Add([]byte(`{"key":"","entry":""}`), int64(-1))
	f.Fuzz(func(t *testing.T, data []byte, written int64) {
		l, err := parseLine(data, written)
		if err != nil {
			if !errors.Is(err, queue.ErrDamaged) {
				t.Error(err)
			}
			return
		}
		again, err := parseLine(l.bytes(), l.now)
		if err != nil || !reflect.DeepEqual(again, l) {
			t.Errorf("%+v is read again as %+v, %v", l, again, err)
		}
	})
}

func FuzzEntry(f *testing.F) {
	for _, k := range []kind{since, due, claimed, parked, idle} {
		f.Add(entry{k, 1795623680346, queue.Digest("key")}.String())
	}
	f.Add("")
	f.Add(strings.Repeat("0", entryLength))
	f.Fuzz(func(t *testing.T, name string) {
		if e, ok := parseEntry(name); ok && (e.String() != name || e.at < 0 || len(e.digest) != digestLength) {
			t.Errorf("%q is read as %+v", name, e)
		}
	})
}

func TestEntriesAreInTheOrderOfTheirTimes(t *testing.T) {
	digest := queue.Digest("key")
	last := ""
	for _, at := range []int64{-5, 1, 15, 16, 255, 1 << 40, 1<<48 - 1} {
		name := entry{due, at, digest}.String()
		if len(name) != entryLength || name <= last {
			t.Errorf("the name for %d is %q, after %q", at, name, last)
		}
		last = name
		if e, ok := parseEntry(name); !ok || e != (entry{due, max(at, 0), digest}) {
			t.Errorf("%q is read as %+v, %v", name, e, ok)
		}
	}
}

func TestEstimateIsBetweenWhatTheWritesSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		const ahead = int64(100_000) // the leader's clock is that much ahead of this one
		leader := func() int64 { return time.Since(c.epoch).Milliseconds() + ahead }
		write := func(there, back time.Duration) {
			sent := time.Now()
			time.Sleep(there)
			at := leader()
			time.Sleep(back)
			c.learn(sent, at)
		}
		between := func(least, most int64) {
			t.Helper()
			if l, m := c.between(); l != leader()-least || m != leader()+most {
				t.Errorf("the time is from %d to %d; want %d less and %d more than %d", l, m, least, most, leader())
			}
		}
		if c.isFresh() {
			t.Error("a clock that knows nothing is fresh")
		}
		write(30*time.Millisecond, 10*time.Millisecond)
		between(10, 31)
		write(5*time.Millisecond, 20*time.Millisecond) // the request tells more, and the answer less
		between(10, 6)
		time.Sleep(fresh - time.Millisecond)
		between(10, 6)
		if !c.isFresh() {
			t.Error("a clock is not fresh within a minute")
		}
		time.Sleep(time.Millisecond)
		if c.isFresh() {
			t.Error("a clock is fresh after a minute")
		}
	})
}

func TestEstimateFollowsAClockThatWasSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, by := range []time.Duration{time.Hour, -time.Hour} {
			c := newClock()
			c.learn(time.Now(), 1e9)
			c.learn(time.Now(), 1e9+by.Milliseconds())
			if l, m := c.between(); l != 1e9+by.Milliseconds() || m != l+1 {
				t.Errorf("set by %v: the time is from %d to %d", by, l, m)
			}
		}
	})
}
