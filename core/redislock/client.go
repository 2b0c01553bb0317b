package redislock

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
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

	replicas *confirmation // that are waited for; or nil

	deletes deletion // how the server deletes a key by its value

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
		w.resend, w.redirected, w.pool, w.database = -1, false, o.PoolSize, o.DB
		// go-redis waits for a socket as long as the client's options say,
		// whatever the context says. A copy of the client on the same pool
		// goes by the context, so that a stalled server holds no goroutine for long.
		own := c.WithTimeout(timeout)
		to := own.Options()
		to.ContextTimeoutEnabled = true
		to.MaxRetries = 0 // sessions repeat what has to be repeated, and know then that there are copies
		to.ReadTimeout, to.WriteTimeout = atMost(timeout, o.ReadTimeout), atMost(timeout, o.WriteTimeout)
		w.client, w.obeysContext = own, true
	}
	return w, nil
}

// addressOf says where a client finds its server, and which database there.
func addressOf(client redis.UniversalClient) string {
	if usable(client) != nil {
		return ""
	}
	switch c := client.(type) {
	case clusterClient:
		return strings.Join(c.Options().Addrs, ", ")
	case *redis.Client:
		o := c.Options()
		where := o.Addr
		if where == "FailoverClient" {
			where = "found by Sentinels"
		}
		if o.DB != 0 {
			where += ", database " + strconv.Itoa(o.DB)
		}
		return where
	}
	return ""
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
// One who waits for replicas takes longer than a caller in exchange may.
func (w *clientWire) endsWithContext() bool { return w.obeysContext && w.replicas == nil }

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
	for _, c := range cmds {
		if c.script != nil {
			p := part{command: c}
			if c.value != nil {
				p.by = w.deletes.known()
			}
			o.parts = append(o.parts, p)
		}
		if c.script == nil || w.cluster == nil && c.script == &protocol.Take {
			o.parts = append(o.parts, part{command: c, draws: true})
		}
	}
	o.answers = slices.Grow(o.answers, len(o.parts))[:len(o.parts)]
	for i := range o.parts {
		o.pending = append(o.pending, i)
	}
	w.send(ctx, o, part.withSource)
	again := w.cluster == nil && o.broken() && ctx.Err() == nil
	if again {
		w.send(ctx, o, part.withSource)
	}
	if w.undone(o) {
		w.send(ctx, o, part.withSource)
	}
	if o.unknown() {
		// The server knows a script after the first copy of its source.
		seen := make(map[*protocol.Script]bool)
		w.send(ctx, o, func(p part) bool {
			first := !seen[p.script]
			seen[p.script] = true
			return first
		})
	}
	if o.unknown() {
		// They went to other servers of a Cluster than the first copies.
		w.send(ctx, o, func(part) bool { return true })
	}
	w.reloadAfterSilence(o.answers)
	took := time.Since(began)
	at := 0
	for i, c := range cmds {
		r := &replies[i]
		for ; at < len(o.parts) && o.parts[at].command == c; at++ {
			w.note(r, o.parts[at], o.answers[at])
		}
		r.err = w.classify(r.err)
		r.sentOnce = r.err == nil && !again && (w.resend < 0 || took < w.resend)
		r.misrouted = r.err == nil && w.redirected && took >= misroutedAfter
	}
	o.reset()
	outgoingPool.Put(o)
}

// note sets what the answer to one part of a command says.
func (w *clientWire) note(r *reply, p part, a answer) {
	if p.confirmable() {
		r.unconfirmed = a.unconfirmed
	}
	switch {
	case p.draws:
		if r.drew = a.err; a.err == nil {
			r.drawn, r.drew = protocol.ParseDrawn(a.value)
		}
		r.drew = w.classify(r.drew)
		if p.script == nil {
			r.err = r.drew
		}
	case p.script != &protocol.Take:
		r.value, r.err = a.value, a.err
		if p.script == &protocol.End && a.err == nil {
			w.deletes.proven(p.by).Store(true)
		}
	case errors.Is(a.err, redis.Nil):
		r.value = int64(0)
	case a.err != nil:
		r.err = a.err
	default:
		if r.value = int64(1); w.cluster != nil && protocol.Named(p.key) && a.value != int64(1) {
			r.drawn, r.drew = protocol.ParseDrawn(a.value)
		}
	}
}

// part is one Redis command of a batch: the script of a command, or what it draws.
type part struct {
	*command
	draws  bool
	begins bool   // the stream of which it draws is not there
	by     string // the command that deletes the key by its value, in the script's place; or ""
}

// withSource reports whether the part is sent with its source from the first.
func (p part) withSource() bool { return p.source }

// answer is that to one part.
type answer struct {
	value any
	err   error

	unconfirmed error // see reply
}

// words appends the words of the Redis command. A single key is a string, because a Cluster's client
// reads it.
func (w *clientWire) words(to []any, p part, source bool) []any {
	switch {
	case p.draws && p.id != "":
		return append(to, "xadd", protocol.Stream(p.key), "maxlen", "~", "1", p.id, "", "")
	case p.begins:
		return append(to, "eval", protocol.BeginStream, 1, protocol.Stream(p.key))
	case p.draws:
		return append(to, "xadd", protocol.Stream(p.key), "nomkstream", "maxlen", "~", "1", "*", "", "")
	case p.script == &protocol.Take && (w.cluster == nil || !protocol.Named(p.key)):
		return append(to, "set", p.key, p.args[0], "nx", "px", p.args[1])
	case p.by == deleteEx:
		return append(to, deleteEx, p.key, "ifeq", p.value.Value())
	case p.by == deleteIfEqual:
		return append(to, deleteIfEqual, p.key, p.value.Value())
	case source:
		to = append(to, "eval", p.script.Source)
	default:
		to = append(to, "evalsha", p.script.SHA)
	}
	// In a Cluster a slot that moves may have the key here and the stream there: such a script would
	// be refused if it named both.
	if w.cluster == nil {
		to = append(to, 2, p.key, protocol.Stream(p.key))
	} else {
		to = append(to, 1, p.key)
	}
	return append(to, p.args...)
}

// outgoing is the parts of one run, with the answer to each.
type outgoing struct {
	parts   []part
	answers []answer
	pending []int // indices of the parts to send
	sent    []*redis.Cmd
	args    []any // of sent
}

var outgoingPool = sync.Pool{New: func() any { return new(outgoing) }}

// reset empties o for the next run.
func (o *outgoing) reset() {
	clear(o.parts)
	clear(o.answers)
	o.parts, o.answers, o.pending = o.parts[:0], o.answers[:0], o.pending[:0]
}

// broken reports whether the connection broke before there was any answer: the server may have closed it
// long ago. All parts are still pending, and may be copies when they are sent over another one.
func (o *outgoing) broken() bool {
	for _, a := range o.answers {
		var op *net.OpError
		if !errors.Is(a.err, io.EOF) && (!errors.As(a.err, &op) || op.Op == "dial" || op.Timeout()) {
			return false
		}
	}
	return true
}

// undone makes those parts pending for which one native command was not enough. They have changed nothing.
func (w *clientWire) undone(o *outgoing) bool {
	o.pending = o.pending[:0]
	for i := range o.parts {
		switch p, a := &o.parts[i], o.answers[i]; {
		case p.by != "" && w.deletes.failed(p.by, a):
			p.by = "" // the script
		case p.draws && p.id == "" && errors.Is(a.err, redis.Nil):
			p.begins = true
		default:
			continue
		}
		o.pending = append(o.pending, i)
	}
	return len(o.pending) > 0
}

// unknown reports whether the server did not know some scripts, and makes these pending. They have
// done nothing.
func (o *outgoing) unknown() bool {
	o.pending = o.pending[:0]
	for i, a := range o.answers {
		if a.err != nil && redis.HasErrorPrefix(a.err, "NOSCRIPT") {
			o.pending = append(o.pending, i)
		}
	}
	return len(o.pending) > 0
}

// send sends the pending parts in one pipeline, or without a pipeline if there is only one, and
// sets their answers. source reports whether a script is sent with its source.
func (w *clientWire) send(ctx context.Context, o *outgoing, source func(part) bool) {
	var leaving *departure
	for _, i := range o.pending {
		p, n := o.parts[i], len(o.args)
		o.args = w.words(o.args, p, source(p))
		if p.written != nil && !p.draws && w.deletes.proven(p.by).Load() {
			if leaving == nil {
				leaving = &departure{Context: ctx, early: !w.obeysContext}
				ctx = leaving
			}
			leaving.follow(&o.args[len(o.args)-1], p.written)
		}
		o.sent = append(o.sent, redis.NewCmd(ctx, o.args[n:len(o.args):len(o.args)]...))
	}
	err := w.exec(ctx, o)
	for j, i := range o.pending {
		a := answer{value: o.sent[j].Val(), err: o.sent[j].Err(), unconfirmed: o.answers[i].unconfirmed}
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
func (w *clientWire) reloadAfterSilence(answers []answer) {
	if w.cluster == nil {
		return
	}
	for _, r := range answers {
		switch {
		case r.err == nil:
			w.mapped.Store(true)
		case !isReply(r.err):
			w.cluster.ReloadState(context.Background()) // in the background
			return
		}
	}
}

// departure tells when the client has written requests. No client library says so, but go-redis has a context's
// deadline twice: for writing, and then for reading the replies. Once it has taken the last word of the last
// request, the next look at the deadline comes after the write. If that should change, nobody is told before the
// reply.
type departure struct {
	context.Context
	early bool // the client does not look at the deadline: tell when the words are taken, just before the write

	open atomic.Int32 // words that the client has not taken
	tell []func()
}

// follow calls written once the request is written that ends with the word, which it replaces.
func (d *departure) follow(word *any, written func()) {
	d.open.Add(1)
	d.tell = append(d.tell, written)
	*word = lastWord{*word, d}
}

// Deadline is the context's.
func (d *departure) Deadline() (time.Time, bool) {
	if d.open.Load() <= 0 {
		d.left()
	}
	return d.Context.Deadline()
}

func (d *departure) left() {
	for _, written := range d.tell {
		written()
	}
}

// lastWord is the last word of a request.
type lastWord struct {
	word any
	of   *departure
}

// String is the word for hooks that print commands.
func (w lastWord) String() string { return fmt.Sprint(w.word) }

// MarshalBinary returns the word as the client would write it.
func (w lastWord) MarshalBinary() (b []byte, err error) {
	switch v := w.word.(type) {
	case encoding.BinaryMarshaler:
		b, err = v.MarshalBinary()
	case []byte:
		b = v
	default:
		b = fmt.Append(nil, v)
	}
	if w.of.open.Add(-1) == 0 && w.of.early {
		w.of.left()
	}
	return b, err
}
