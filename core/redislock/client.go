package redislock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// strayTime is less than it takes to move a slot to another master and back, and
// to begin to move it there again.
//
// A master that is giving a slot away sends clients to the other for a key that it
// does not have, and the other serves them for as long as it is receiving the
// slot (ASK and ASKING in the Cluster specification). A client may take its time:
// go-redis pauses before it sends a pipeline on, for up to MaxRetryBackoff. If the
// slot has come back meanwhile and leaves again, the key is where it was, and
// the other serves the command without it.
const strayTime = 10 * time.Millisecond

// maxConnections bounds the connections that requests travel on at once. More carry no more.
const maxConnections = 32

// clusterClient is a *redis.ClusterClient or what embeds one.
type clusterClient interface {
	Options() *redis.ClusterOptions
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	ReloadState(ctx context.Context)
}

// clientWire reaches the server through go-redis.
type clientWire struct {
	client redis.UniversalClient

	cluster    clusterClient                // client, if it is one
	mapped     atomic.Bool                  // cluster knows which server has which keys
	subscribed atomic.Pointer[redis.Client] // the last master that was subscribed at

	// resend is how long after its first sending the client may send a command
	// again unasked: sooner it has left once. Negative: it never does.
	resend time.Duration

	pool int // the client's connections to a server

	redirected bool // the client may go where a server of a Cluster sends it
	heeds      bool // the client gives a socket up when a context's deadline has passed

	// check is how long a subscription may be silent before it is pinged, and
	// how long the answer may take.
	check time.Duration
}

func newClientWire(client redis.UniversalClient, timeout time.Duration) (*clientWire, error) {
	if err := usable(client); err != nil {
		return nil, err
	}
	w := &clientWire{client: client, check: timeout, redirected: true}
	switch c := client.(type) {
	case clusterClient:
		// It waits as long before it sends a command again, unless a server
		// has refused the first one.
		o := c.Options()
		w.cluster, w.resend, w.redirected, w.heeds = c, o.MinRetryBackoff, o.MaxRedirects > 0, o.ContextTimeoutEnabled
		w.pool = o.PoolSize
		if o.MaxRedirects <= 0 && o.MaxRetries <= 0 {
			w.resend = -1
		}
	case *redis.Client:
		o := c.Options()
		w.resend, w.redirected, w.pool = o.MinRetryBackoff, false, o.PoolSize
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
		w.client, w.heeds = own, true
	}
	return w, nil
}

// atMost is d unless that is no bound, or a later one.
func atMost(bound, d time.Duration) time.Duration {
	if d <= 0 {
		return bound
	}
	return min(bound, d)
}

// shipment is one run's parcels, with what the client says of each.
type shipment struct {
	parcels []parcel
	answers []reply
	todo    []int // indices of the parcels to send
	sent    []*redis.Cmd
	args    []any // of sent
}

var shipments = sync.Pool{New: func() any { return new(shipment) }}

// run sends scripts by their names, and by their source those that the server
// has forgotten.
func (w *clientWire) run(ctx context.Context, cmds []*command, replies []reply) {
	began := time.Now()
	sh := shipments.Get().(*shipment)
	sh.parcels = w.pack(sh.parcels, cmds)
	sh.answers = slices.Grow(sh.answers, len(sh.parcels))[:len(sh.parcels)]
	for i := range sh.parcels {
		sh.todo = append(sh.todo, i)
	}
	w.send(ctx, sh, func(p parcel) bool { return p[0].source })
	if sh.unknown() {
		// One copy of the source teaches a server all that follow.
		seen := make(map[*protocol.Script]bool)
		w.send(ctx, sh, func(p parcel) bool {
			first := !seen[p.script()]
			seen[p.script()] = true
			return first
		})
	}
	if sh.unknown() {
		// They went to another server of a Cluster.
		w.send(ctx, sh, func(parcel) bool { return true })
	}
	w.heed(sh.answers)
	took := time.Since(began)
	for i, p := range sh.parcels {
		p.unpack(replies[:len(p)], sh.answers[i])
		for j := range p {
			r := &replies[j]
			r.err = w.classify(r.err)
			r.once = r.err == nil && (w.resend < 0 || took < w.resend)
			r.astray = r.err == nil && w.redirected && took >= strayTime
		}
		replies = replies[len(p):]
	}
	sh.reset()
	shipments.Put(sh)
}

// reset empties a shipment for the next run.
func (sh *shipment) reset() {
	clear(sh.parcels)
	clear(sh.answers)
	sh.parcels, sh.answers, sh.todo = sh.parcels[:0], sh.answers[:0], sh.todo[:0]
}

// unknown has those sent once more whose script the server did not know, and reports
// whether there are any. They have done nothing.
func (sh *shipment) unknown() bool {
	sh.todo = sh.todo[:0]
	for i, r := range sh.answers {
		if r.err != nil && redis.HasErrorPrefix(r.err, "NOSCRIPT") {
			sh.todo = append(sh.todo, i)
		}
	}
	return len(sh.todo) > 0
}

// classify is the package's, which knows nothing of clients.
func (w *clientWire) classify(err error) error {
	if w.cluster == nil && err != nil && redis.HasErrorPrefix(err, "MOVED") {
		return &driver.PermanentError{Err: fmt.Errorf("redis: the server is one of a Cluster; use redis.NewClusterClient: %w", err)}
	}
	return classify(err)
}

// heed has a Cluster's client look for the servers again when one of them does
// not answer: nobody tells it of a failover, and by itself it looks every 10 s.
func (w *clientWire) heed(replies []reply) {
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

// prompt reports whether the client gives up when it is told to.
func (w *clientWire) prompt() bool { return w.heeds }

// connections leaves a quarter of the client's to others.
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

// send sends the parcels that are to be sent in one pipeline, or straight if
// there is one, and sets their answers.
func (w *clientWire) send(ctx context.Context, sh *shipment, source func(parcel) bool) {
	for _, i := range sh.todo {
		p, n := sh.parcels[i], len(sh.args)
		sh.args = p.request(sh.args, source(p))
		sh.sent = append(sh.sent, redis.NewCmd(ctx, sh.args[n:len(sh.args):len(sh.args)]...))
	}
	var err error
	if len(sh.sent) == 1 {
		err = w.client.Process(ctx, sh.sent[0])
	} else {
		pipe := w.client.Pipeline()
		for _, c := range sh.sent {
			_ = pipe.Process(ctx, c) // only queues it
		}
		_, err = pipe.Exec(ctx)
	}
	for j, i := range sh.todo {
		a := reply{value: sh.sent[j].Val(), err: sh.sent[j].Err()}
		// A pipeline that got no connection leaves its commands untouched.
		if a.err == nil && a.value == nil {
			if a.err = err; err == nil {
				a.err = errEmpty
			}
		}
		sh.answers[i] = a
	}
	clear(sh.sent)
	clear(sh.args)
	sh.sent, sh.args = sh.sent[:0], sh.args[:0]
}

// subscriber is the client to subscribe with. A Cluster's masters tell each other
// what is published, so that one of them will do, and if its subscription ends
// another one. go-redis by itself takes the master that has the slot of the
// channel's name, and while that one is dead no other.
func (w *clientWire) subscriber(ctx context.Context) (redis.UniversalClient, error) {
	if w.cluster == nil {
		return w.client, nil
	}
	const tries = 16
	for i := 1; ; i++ {
		master, err := w.cluster.MasterForKey(ctx, strconv.Itoa(rand.Int()))
		if err != nil {
			return nil, err
		}
		if master != w.subscribed.Load() || i == tries {
			w.subscribed.Store(master)
			return master, nil
		}
	}
}

// listen receives on a subscription of its own connection. It survives one
// reconnection that fails, and no more: the session decides when to try again.
func (w *clientWire) listen(ctx context.Context, channel string, up func(), message func(string)) error {
	client, err := w.subscriber(ctx)
	if err != nil {
		return classify(err)
	}
	subscription := client.Subscribe(ctx)
	defer func() { _ = subscription.Close() }() // a second closing only says so
	if err := subscription.Subscribe(ctx, channel); err != nil {
		w.heed([]reply{{err: err}})
		return classify(err)
	}
	var heard atomic.Bool
	var health sync.WaitGroup
	done := make(chan struct{})
	defer health.Wait()
	defer close(done)
	health.Go(func() { w.checkHealth(ctx, subscription, &heard, done) })

	for failed := false; ; {
		m, err := subscription.Receive(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			heard.Store(true)
		case failed || isReply(err) || errors.Is(err, redis.ErrClosed):
			w.heed([]reply{{err: err}})
			return classify(err)
		default:
			failed = true // Receive has reconnected, or tries when called again
			continue
		}
		switch m := m.(type) {
		case *redis.Subscription:
			if m.Kind == "subscribe" {
				failed = false
				up()
			}
		case *redis.Message:
			message(m.Payload)
		}
	}
}

// checkHealth pings a silent subscription and closes a dead one. It pings at
// once too, so that a user without the right to is found out early.
func (w *clientWire) checkHealth(ctx context.Context, s *redis.PubSub, heard *atomic.Bool, done <-chan struct{}) {
	tick := time.NewTicker(w.check)
	defer tick.Stop()
	for asked := false; ; {
		if heard.Swap(false) {
			asked = false
		} else if asked {
			_ = s.Close()
			return
		} else {
			_ = s.Ping(ctx) // Receive sees the broken connection, or the pong
			asked = true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			_ = s.Close() // ends Receive
			return
		case <-done:
			return
		}
	}
}

// isReply reports whether err is an error reply: the connection still works.
func isReply(err error) bool {
	re := redis.Error(nil)
	return errors.As(err, &re)
}
