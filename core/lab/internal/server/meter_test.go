package server

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/testservers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMeterReadsWhatAStoreHasDone(t *testing.T) {
	for kind, program := range map[Kind]string{Etcd: "etcd", Redis: "redis-server", Three: "redis-server", SingleZooKeeper: "java", MariaDB: "mariadbd"} {
		t.Run(string(kind), func(t *testing.T) {
			testservers.Need(t, program)
			s, err := Start(t.Context(), kind)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close() //nolint:errcheck // the test is over
			m := s.Meter(kind)
			first, err := m.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Pids) != len(m.Addrs) {
				t.Errorf("the processes are %v, the addresses %v", m.Pids, m.Addrs)
			}
			for last, deadline := first, time.Now().Add(time.Minute); last.Requests <= first.Requests || last.Processor <= first.Processor; {
				ask(t, kind, s)
				if last, err = m.Read(t.Context()); err != nil || time.Now().After(deadline) {
					t.Fatalf("it read %+v, and a minute later %+v, %v", first, last, err)
				}
			}
		})
	}
}

// ask makes a request. Of Redis the meter itself makes some.
func ask(t *testing.T, kind Kind, s *Server) {
	if kind != Etcd {
		return
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.Addr+"/v3/kv/range", bytes.NewBufferString(`{"key":"YQ=="}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = got.Body.Close()
}
