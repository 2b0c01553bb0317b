package lockpage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/watch"
)

const (
	// slowest is how long a browser may take to read a page or a message of a stream, or to send
	// a form.
	slowest = 30 * time.Second
	// heartbeat is how often a stream on which nothing happens says that it is alive.
	heartbeat = 15 * time.Second
	// streamLasts is after how long a browser has to ask again, and may be refused.
	streamLasts = 10 * time.Minute
	// keyEvery is how often the store is asked about a key that somebody looks at, whoever looks,
	// and keyWithin how long it has to answer.
	keyEvery  = time.Second
	keyWithin = 2 * time.Second
	// mostAsked is of how many keys the latest answers are kept.
	mostAsked = 256
)

// notLive is what is to be changed about a server that lets nobody set deadlines.
const notLive = "there is no live page here, since no deadline can be set: the handler is within http.TimeoutHandler, or within " +
	"middleware that wraps http.ResponseWriter and has no method Unwrap; serve it outside of that"

// message is what a browser gets.
type message struct {
	Now      int64    `json:"now"` // ms since 1970, by this process's clock
	Sections []change `json:"d,omitempty"`
}

// serveEvents keeps a browser up to date. The query is that of its page.
func (p *page) serveEvents(w http.ResponseWriter, r *http.Request) {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many browsers are kept up to date", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), streamLasts)
	defer cancel()
	shut := p.shutdown(r)

	s, leave, err := p.hub.look(ctx)
	if err != nil {
		http.Error(w, "the locks cannot be watched", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	key, one := "", r.URL.Query().Get("id")
	if one != "" {
		var ok bool
		if key, ok = s.named(ctx, one); !ok {
			w.WriteHeader(http.StatusNoContent) // by which a browser does not come again
			return
		}
	}

	out := http.NewResponseController(w)
	if err := out.SetWriteDeadline(time.Now().Add(slowest)); err != nil {
		http.Error(w, notLive, http.StatusNotImplemented)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // or nginx keeps it to itself

	got := newSent()
	for beat := time.Now(); ; {
		pic := s.picture()
		d := p.draw(ctx, s, pic, key)
		if d.err != nil {
			p.locks.Logger().Error("lockpage: a page could not be made", "error", d.err)
			return
		}
		m := message{Now: time.Now().UnixMilli(), Sections: got.since(d.all)}
		if len(m.Sections) > 0 || time.Since(beat) >= heartbeat {
			beat = time.Now()
			if err := p.send(w, out, m); err != nil {
				return
			}
		}
		paced := time.After(pace)
		again := time.After(heartbeat)
		if key != "" {
			again = time.After(keyEvery)
		}
		select {
		case <-ctx.Done():
			return
		case <-shut:
			return
		case <-s.over:
			return
		case <-pic.next:
		case <-again:
		}
		select {
		case <-ctx.Done():
			return
		case <-shut:
			return
		case <-paced:
		}
	}
}

// draw makes the sections of the page that the browser shows.
func (p *page) draw(ctx context.Context, s *session, pic *picture, key string) *drawing {
	b := builderOf(pic, p.mask)
	b.live = true
	if key == "" {
		pic.once.Do(func() { pic.live = b.overview(pic) })
		return pic.live
	}
	k := s.key(ctx, key, pic)
	return b.closely(&k)
}

// send writes a message, or gives up on a browser that does not read.
func (p *page) send(w http.ResponseWriter, out *http.ResponseController, m message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := out.SetWriteDeadline(time.Now().Add(slowest)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil {
		return err
	}
	return out.Flush()
}

// first returns the latest picture, of a watch that has just begun once there is something in it.
func (s *session) first(ctx context.Context) *picture {
	late := time.NewTimer(time.Until(s.settled))
	defer late.Stop()
	for {
		pic := s.picture()
		select {
		case <-pic.next:
		case <-late.C:
			return s.picture()
		case <-ctx.Done():
			return pic
		case <-s.over:
			return pic
		}
	}
}

// asked is a look at a key, of all who want one within [keyEvery].
type asked struct {
	done  chan struct{} // closed when there is an answer
	at    time.Time     // when it was asked for, and then when it came
	known watch.Key
}

// key looks at a key. If the store does not answer, it is what the processes tell. What they have told
// since the store was asked is in the picture.
func (s *session) key(ctx context.Context, key string, pic *picture) watch.Key {
	k, at := s.ask(ctx, key)
	if i := slices.IndexFunc(pic.view.Keys, func(k watch.Key) bool { return k.Key == key }); i >= 0 && pic.view.At.After(at) {
		store := k.Store
		k = pic.view.Keys[i]
		k.Store = store
	}
	k.Key = key
	k.Holders = slices.Clone(k.Holders) // which are others' too
	settle(&k)
	return k
}

// ask asks about a key, or waits for what somebody else has asked, or returns what was answered lately.
func (s *session) ask(ctx context.Context, key string) (watch.Key, time.Time) {
	now := time.Now()
	s.mu.Lock()
	a := s.asked[key]
	if a == nil || now.Sub(a.at) >= keyEvery {
		if len(s.asked) >= mostAsked {
			maps.DeleteFunc(s.asked, func(_ string, a *asked) bool { return now.Sub(a.at) >= keyEvery })
		}
		a = &asked{done: make(chan struct{}), at: now.Add(keyWithin)}
		if s.asked == nil {
			s.asked = make(map[string]*asked)
		}
		s.asked[key] = a
		s.mu.Unlock()
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), keyWithin) // others wait for it too
		k, _ := s.watcher.Key(within, key)                                           // without Store if there is none
		cancel()
		s.mu.Lock()
		a.known, a.at = k, time.Now()
		close(a.done)
		defer s.mu.Unlock()
		return a.known, a.at
	}
	s.mu.Unlock()
	select {
	case <-a.done:
	case <-ctx.Done():
		return watch.Key{}, time.Time{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return a.known, a.at
}

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
