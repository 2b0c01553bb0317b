package redislock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// clientWire reaches the server through go-redis.
type clientWire struct {
	client redis.UniversalClient

	cluster    clusterClient                // client, if it is one
	mapped     atomic.Bool                  // cluster knows which server has which keys
	subscribed atomic.Pointer[redis.Client] // the last master that was subscribed at

	// resend is how long after sending a command the client may send it again by itself. An
	// earlier reply shows that it was sent once. Negative: the client never sends it again.
	resend time.Duration

	pool int // the client's connections to a server

	redirected   bool // the client may follow the redirections of a Cluster
	obeysContext bool // the client gives up a socket when a context's deadline has passed

	database int // a Cluster has 0 only

	// check is how long a subscription may be silent before it is pinged, and
	// how long the answer may take.
	check time.Duration
}

// clusterClient is a *redis.ClusterClient or a type that embeds one.
type clusterClient interface {
	Options() *redis.ClusterOptions
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	ReloadState(ctx context.Context)
	ForEachMaster(ctx context.Context, do func(ctx context.Context, master *redis.Client) error) error
}

// maxConnections bounds the connections in use at once. More do not raise the throughput.
const maxConnections = 32

func newClientWire(client redis.UniversalClient, timeout time.Duration) (*clientWire, error) {
	if err := usable(client); err != nil {
		return nil, err
	}
	w := &clientWire{client: client, check: timeout, redirected: true}
	switch c := client.(type) {
	case clusterClient:
		// It waits for MinRetryBackoff before it sends a command again, unless a
		// server has refused the first one.
		o := c.Options()
		w.cluster, w.resend, w.redirected, w.obeysContext = c, o.MinRetryBackoff, o.MaxRedirects > 0, o.ContextTimeoutEnabled
		w.pool = o.PoolSize
		if o.MaxRedirects <= 0 && o.MaxRetries <= 0 {
			w.resend = -1
		}
	case *redis.Client:
		o := c.Options()
		w.resend, w.redirected, w.pool, w.database = o.MinRetryBackoff, false, o.PoolSize, o.DB
		if o.MaxRetries <= 0 {
			w.resend = -1
		}
		// go-redis waits for a socket as long as the client's options say,
		// whatever the context says. A copy of the client on the same pool
		// goes by the context, so that a stalled server holds no goroutine for long.
		own := c.WithTimeout(timeout)
		to := own.Options()
		to.ContextTimeoutEnabled = true
		to.ReadTimeout, to.WriteTimeout = atMost(timeout, o.ReadTimeout), atMost(timeout, o.WriteTimeout)
		w.client, w.obeysContext = own, true
	}
	return w, nil
}

// usable returns an error for a client with which the protocol cannot work.
func usable(client redis.UniversalClient) error {
	if client == nil {
		return errors.New("the client is nil; pass a *redis.Client or a *redis.ClusterClient")
	}
	if v := reflect.ValueOf(client); v.Kind() == reflect.Pointer && v.IsNil() {
		return errors.New("the client is a nil pointer; pass one made by redis.NewClient")
	}
	if _, ok := client.(*redis.Ring); ok {
		return errors.New("the client is a *redis.Ring, whose subscriptions live on other servers than its keys; pass a *redis.Client or a *redis.ClusterClient")
	}
	return nil
}

// atMost returns the time-out d, or bound if d is longer or no time-out at all.
func atMost(bound, d time.Duration) time.Duration {
	if d <= 0 {
		return bound
	}
	return min(bound, d)
}

// endsWithContext reports whether the client gives up a socket when a context ends.
func (w *clientWire) endsWithContext() bool { return w.obeysContext }

// connections leaves a quarter of the client's connections to others.
func (w *clientWire) connections() int { return min(w.pool*3/4, maxConnections) }

// node names the master that has the key.
func (w *clientWire) node(key string) string {
	if !w.mapped.Load() {
		return "" // the client would have to ask
	}
	master, err := w.cluster.MasterForKey(context.Background(), key)
	if err != nil {
		return ""
	}
	return master.Options().Addr
}

// misroutedAfter is how long a command must take for its reply to count as misrouted. A slot
// cannot move to another master and back, and begin to move there again, in less time.
//
// A master that is giving a slot away redirects clients to the other one for keys that it
// does not have, and the other serves them while it is receiving the slot (ASK and ASKING in
// the Cluster specification). A client may follow late: go-redis pauses for up to
// MaxRetryBackoff before it sends a pipeline on. If the slot has come back meanwhile and
// leaves again, the first master has the key, and the other executes the command without it.
const misroutedAfter = 10 * time.Millisecond

// run sends scripts by their SHA, and by their source if the server does not know them.
func (w *clientWire) run(ctx context.Context, cmds []*command, replies []reply) {
	began := time.Now()
	o := outgoingPool.Get().(*outgoing)
	o.packets = w.pack(o.packets, cmds)
	o.answers = slices.Grow(o.answers, len(o.packets))[:len(o.packets)]
	for i := range o.packets {
		o.pending = append(o.pending, i)
	}
	w.send(ctx, o, func(p packet) bool { return p[0].source })
	if o.unknown() {
		// The server knows a script after the first copy of its source.
		seen := make(map[*protocol.Script]bool)
		w.send(ctx, o, func(p packet) bool {
			first := !seen[p.script()]
			seen[p.script()] = true
			return first
		})
	}
	if o.unknown() {
		// They went to other servers of a Cluster than the first copies.
		w.send(ctx, o, func(packet) bool { return true })
	}
	w.reloadAfterSilence(o.answers)
	took := time.Since(began)
	for i, p := range o.packets {
		p.unpack(replies[:len(p)], o.answers[i])
		for j := range p {
			r := &replies[j]
			r.err = w.classify(r.err)
			r.sentOnce = r.err == nil && (w.resend < 0 || took < w.resend)
			r.misrouted = r.err == nil && w.redirected && took >= misroutedAfter
		}
		replies = replies[len(p):]
	}
	o.reset()
	outgoingPool.Put(o)
}

// outgoing is the packets of one run, with the answer to each.
type outgoing struct {
	packets []packet
	answers []reply
	pending []int // indices of the packets to send
	sent    []*redis.Cmd
	args    []any // of sent
}

var outgoingPool = sync.Pool{New: func() any { return new(outgoing) }}

// reset empties o for the next run.
func (o *outgoing) reset() {
	clear(o.packets)
	clear(o.answers)
	o.packets, o.answers, o.pending = o.packets[:0], o.answers[:0], o.pending[:0]
}

// unknown reports whether the server did not know the scripts of some packets, and makes these
// pending. They have done nothing.
func (o *outgoing) unknown() bool {
	o.pending = o.pending[:0]
	for i, r := range o.answers {
		if r.err != nil && redis.HasErrorPrefix(r.err, "NOSCRIPT") {
			o.pending = append(o.pending, i)
		}
	}
	return len(o.pending) > 0
}

// pack appends packets with the commands, in their order. In a Cluster each command has a
// packet of its own, since the keys are on several servers.
func (w *clientWire) pack(to []packet, cmds []*command) []packet {
	for len(cmds) > 0 {
		n := 0
		for n < min(len(cmds), maxJoint) && w.cluster == nil && !cmds[n].source && protocol.Joins(cmds[n].script) {
			n++
		}
		n = max(n, 1)
		to, cmds = append(to, cmds[:n:n]), cmds[n:]
	}
	return to
}

// send sends the pending packets in one pipeline, or without a pipeline if there is only one, and
// sets their answers. source reports whether a packet is sent with the source of its script.
func (w *clientWire) send(ctx context.Context, o *outgoing, source func(packet) bool) {
	for _, i := range o.pending {
		p, n := o.packets[i], len(o.args)
		o.args = p.words(o.args, source(p))
		o.sent = append(o.sent, redis.NewCmd(ctx, o.args[n:len(o.args):len(o.args)]...))
	}
	var err error
	if len(o.sent) == 1 {
		err = w.client.Process(ctx, o.sent[0])
	} else {
		pipe := w.client.Pipeline()
		for _, c := range o.sent {
			_ = pipe.Process(ctx, c) // only queues it
		}
		_, err = pipe.Exec(ctx)
	}
	for j, i := range o.pending {
		a := reply{value: o.sent[j].Val(), err: o.sent[j].Err()}
		// A pipeline that got no connection leaves its commands untouched.
		if a.err == nil && a.value == nil {
			if a.err = err; err == nil {
				a.err = errEmpty
			}
		}
		o.answers[i] = a
	}
	clear(o.sent)
	clear(o.args)
	o.sent, o.args = o.sent[:0], o.args[:0]
}

// classify adds to the package's classify what depends on the client.
func (w *clientWire) classify(err error) error {
	if w.cluster == nil && err != nil && redis.HasErrorPrefix(err, "MOVED") {
		return &driver.PermanentError{Err: fmt.Errorf("redis: the server is one of a Cluster; use redis.NewClusterClient: %w", err)}
	}
	return classify(err)
}

// reloadAfterSilence makes a Cluster's client look for the servers again when one of them
// does not answer: nobody tells it of a failover, and by itself it looks every 10 s.
func (w *clientWire) reloadAfterSilence(replies []reply) {
	if w.cluster == nil {
		return
	}
	for _, r := range replies {
		switch {
		case r.err == nil:
			w.mapped.Store(true)
		case !isReply(r.err):
			w.cluster.ReloadState(context.Background()) // in the background
			return
		}
	}
}
