package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
)

// Roads are the links of one process to all servers of a store, which all do the same.
type Roads []*Link

// NewRoads starts a link to each of the servers.
func NewRoads(targets []string) (Roads, error) {
	var out Roads
	for _, target := range targets {
		l, err := New(target)
		if err != nil {
			return nil, errors.Join(err, out.Close())
		}
		out = append(out, l)
	}
	return out, nil
}

// Addr is where the process finds the store: the host and port of the link if there is one,
// and of several the text of [Routes].
func (r Roads) Addr() string {
	if len(r) == 1 {
		return r[0].Addr()
	}
	var pairs []string
	for _, l := range r {
		pairs = append(pairs, l.Target()+"="+l.Addr())
	}
	return strings.Join(pairs, ",")
}

// Set changes what the links do.
func (r Roads) Set(s State) {
	for _, l := range r {
		l.Set(s)
	}
}

// Cut closes all connections.
func (r Roads) Cut() {
	for _, l := range r {
		l.Cut()
	}
}

// Close ends the links and their connections.
func (r Roads) Close() error {
	var errs []error
	for _, l := range r {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// Routes lead from the addresses of servers, as these call each other, to the links.
type Routes struct {
	Servers []string
	links   map[string]string
}

// ParseRoutes reads [Roads.Addr] of several servers.
func ParseRoutes(text string) (Routes, error) {
	r := Routes{links: map[string]string{}}
	for pair := range strings.SplitSeq(text, ",") {
		server, by, ok := strings.Cut(pair, "=")
		if !ok {
			return r, fmt.Errorf("route %q: there is no equals sign between a server and its link", pair)
		}
		r.Servers = append(r.Servers, server)
		r.links[server] = by
	}
	return r, nil
}

// Links are the addresses of the links, in the order of the servers.
func (r Routes) Links() (all []string) {
	for _, server := range r.Servers {
		all = append(all, r.links[server])
	}
	return all
}

// Dial connects to a server by its link. The connection's remote address is the server's,
// by which clients tell a master from another one.
func (r Routes) Dial(ctx context.Context, network, server string) (net.Conn, error) {
	by, ok := r.links[server]
	if !ok {
		return nil, fmt.Errorf("there is no link to %s", server)
	}
	c, err := new(net.Dialer).DialContext(ctx, network, by)
	if err != nil {
		return nil, err
	}
	addr, err := net.ResolveTCPAddr(network, server)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &routed{c.(*net.TCPConn), addr}, nil
}

type routed struct {
	*net.TCPConn
	server net.Addr
}

func (c *routed) RemoteAddr() net.Addr { return c.server }
