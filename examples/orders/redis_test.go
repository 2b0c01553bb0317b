package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lockaround/lockaround/examples/orders/orderspb"
)

func TestReplicasShareTheirLocksInRedis(t *testing.T) {
	// Nobody's wait is over before all have been served, however busy the machine is.
	patient := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(patient, []byte("policies: {place: {wait: 5m}, take: {wait: 5m}, put-back: {wait: 5m}, charge: {wait: 5m}, pay-back: {wait: 5m}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := options{redis: startRedis(t), policies: patient, latency: 100 * time.Microsecond}
	db := newDatabase(assortment(), o.trip)
	var replicas [2]orderspb.OrdersClient
	for i := range replicas {
		locks, err := openLocks(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		s, err := open("127.0.0.1:0", locks, db)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		replicas[i] = orderspb.NewOrdersClient(dial(t, s.address))
	}
	errs := atOnce(customers, func(i int) error {
		_, err := replicas[i%2].PlaceOrder(t.Context(), order(numbered("o", i), numbered("c", i), "book"))
		return err
	})
	tallied(t, errs, map[codes.Code]int{codes.OK: 40, codes.ResourceExhausted: 60})
}

// startRedis starts a server that ends with the test, and returns its address.
func startRedis(t *testing.T) string {
	t.Helper()
	server, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("LOCKAROUND_REQUIRE_SERVERS") == "1" {
			t.Fatal("redis-server is not installed, and LOCKAROUND_REQUIRE_SERVERS=1 asks for it")
		}
		t.Skip("redis-server is not installed")
	}
	socket := filepath.Join(t.TempDir(), "redis")
	cmd := exec.Command(server, "--port", "0", "--unixsocket", socket, "--dir", t.TempDir(), "--save", "")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var log strings.Builder
	for lines.Scan() && !strings.Contains(lines.Text(), "ready to accept connections") {
		log.WriteString(lines.Text() + "\n")
	}
	if lines.Text() == "" {
		t.Fatalf("redis-server did not start: %v\n%s", cmd.Wait(), log.String())
	}
	drained := make(chan struct{})
	go func() { defer close(drained); _, _ = io.Copy(io.Discard, out) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-drained
		_ = cmd.Wait() // killed, which Wait reports
	})
	return socket
}
