package etcdlock

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestSpareLeaseServesWhoAsksForItsTimeWhileItLasts(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name    string
		age     time.Duration
		seconds int64
		want    bool
	}{
		{"fresh", 0, 10, true},
		{"half over", 5 * time.Second, 10, true},
		{"almost over", 6 * time.Second, 10, false},
		{"of another length", 0, 11, false},
	} {
		var s spares
		s.add(etcdLease{id: 7, seconds: 10, sent: now.Add(-tt.age)})
		got, ok := s.take(tt.seconds, "k", now)
		if ok != tt.want || ok && got.id != 7 {
			t.Errorf("%s: got %v, %v", tt.name, got, ok)
		}
		if _, again := s.take(tt.seconds, "k", now); again {
			t.Errorf("%s: a lease was taken twice", tt.name)
		}
	}
}

// etcd searches all names that a key has had, and each lease has one.
func TestSpareLeaseOfTheSameKeyComesFirst(t *testing.T) {
	now := time.Now()
	var s spares
	for i, key := range []string{"old", "a", "b", "c"} {
		l := etcdLease{id: clientv3.LeaseID(i), seconds: 10, sent: now, key: key}
		if key == "old" {
			l.sent = now.Add(-6 * time.Second)
		}
		s.add(l)
	}
	for _, tt := range []struct {
		key  string
		want clientv3.LeaseID
	}{{"a", 1}, {"a", 3}, {"old", 2}} {
		if l, ok := s.take(10, tt.key, now); !ok || l.id != tt.want {
			t.Errorf("key %q: took lease %d, want %d", tt.key, l.id, tt.want)
		}
	}
}

func TestSpareLeasesAreBoundedAndOldOnesMakeRoom(t *testing.T) {
	now := time.Now()
	var s spares
	for i := range maxSpares {
		if !s.add(etcdLease{id: clientv3.LeaseID(i + 1), seconds: 10, sent: now.Add(-time.Minute * time.Duration(i%2))}) {
			t.Fatalf("lease %d was refused", i+1)
		}
	}
	for i := range maxSpares {
		if took, want := s.add(etcdLease{id: 1000, seconds: 30, sent: now}), i < maxSpares/2; took != want {
			t.Fatalf("beside %d fresh leases one more was taken: %v", maxSpares/2+i, took)
		}
	}
	if left := s.close(); len(left) != maxSpares {
		t.Errorf("%d leases are left, want %d", len(left), maxSpares)
	}
	if s.add(etcdLease{id: 1, seconds: 10, sent: now}) {
		t.Error("a session that is closed keeps a lease")
	}
}
