package link_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core/lab/faults/link"
)

// named starts a server that says its name to everybody who comes.
func named(t *testing.T, name string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintln(c, name)
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

func TestRoutesLeadToEachServerByItsLink(t *testing.T) {
	servers := []string{named(t, "a"), named(t, "b")}
	roads, err := link.NewRoads(servers)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := roads.Close(); err != nil {
			t.Error(err)
		}
	}()
	routes, err := link.ParseRoutes(roads.Addr())
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"a", "b"} {
		c, err := routes.Dial(t.Context(), "tcp", routes.Servers[i])
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(c).ReadString('\n'); strings.TrimSpace(line) != name {
			t.Errorf("by the route to %s comes %q, %v", name, line, err)
		}
		if got := c.RemoteAddr().String(); got != servers[i] {
			t.Errorf("the connection says that it leads to %s, want %s", got, servers[i])
		}
		_ = c.Close()
	}
	if _, err := routes.Dial(t.Context(), "tcp", "127.0.0.1:1"); err == nil {
		t.Error("there is a way to a server without a link")
	}
	if _, err := link.ParseRoutes("127.0.0.1:1"); err == nil {
		t.Error("an address is taken for a route")
	}
}

func TestRoadsOfOneServerAreItsLink(t *testing.T) {
	roads, err := link.NewRoads([]string{named(t, "a")})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", roads.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // the test ends
	if line, err := bufio.NewReader(c).ReadString('\n'); strings.TrimSpace(line) != "a" {
		t.Errorf("it says %q, %v", line, err)
	}
	if err := roads.Close(); err != nil {
		t.Error(err)
	}
}
