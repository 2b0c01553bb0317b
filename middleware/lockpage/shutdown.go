package lockpage

import (
	"errors"
	"net"
	"net/http"
	"sync"
)

// shutdown returns a channel that is closed when the server of the request shuts down, which
// waits for its requests. It is nil for a server that cannot be known.
func (p *page) shutdown(r *http.Request) <-chan struct{} {
	server, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok {
		return nil
	}
	if shut, known := p.servers.Load(server); known {
		return shut.(chan struct{})
	}
	c := make(chan struct{})
	shut, known := p.servers.LoadOrStore(server, c)
	if !known {
		end := sync.OnceFunc(func() { close(c) })
		server.RegisterOnShutdown(end)
		if address, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && isShut(server, address) {
			end()
		}
	}
	return shut.(chan struct{})
}

// isShut reports whether a server shuts down already: it calls nothing then that is registered
// from here on. The server is asked to serve a listener that has no connections, which it refuses
// if so. One with a BaseContext is not asked, since it would call that.
func isShut(server *http.Server, address net.Addr) bool {
	return server.BaseContext == nil && errors.Is(server.Serve(without{address}), http.ErrServerClosed)
}

// without is a listener without connections.
type without struct{ address net.Addr }

var errNone = errors.New("there are no connections")

func (without) Accept() (net.Conn, error) { return nil, errNone }
func (without) Close() error              { return nil }
func (l without) Addr() net.Addr          { return l.address }
