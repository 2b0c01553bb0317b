package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// clientWire sends commands to one node through go-redis.
type clientWire struct {
	client *redis.Client
	check  time.Duration // how long a subscription may be silent before it is pinged
}

// newClientWire uses the client's connections with other options: a context bounds every
// wait for a socket, and the client repeats nothing by itself, so that the session knows
// which commands may still be executed.
func newClientWire(client *redis.Client, timeout time.Duration) *clientWire {
	own := client.WithTimeout(timeout)
	o := own.Options()
	o.ContextTimeoutEnabled = true
	o.MaxRetries = 0
	o.ReadTimeout, o.WriteTimeout = timeout, timeout
	return &clientWire{client: own, check: timeout}
}

func (w *clientWire) name() string { return w.client.Options().Addr }

// run sends the commands, and sends those again whose connection broke: the server may have
// closed an idle connection long before.
func (w *clientWire) run(ctx context.Context, cmds []command) []reply {
	replies := make([]reply, len(cmds))
	todo := make([]int, len(cmds))
	for i := range todo {
		todo[i] = i
	}
	w.sendKnown(ctx, cmds, replies, todo)
	again := todo[:0]
	for i := range replies {
		if err := replies[i].err; err != nil && !isReply(err) && !isTimeout(err) && ctx.Err() == nil {
			replies[i].sentTwice = !neverSent(err)
			again = append(again, i)
		}
	}
	if len(again) > 0 {
		w.sendKnown(ctx, cmds, replies, again)
	}
	for i := range replies {
		r := &replies[i]
		r.neverRun = r.err != nil && !r.sentTwice && neverSent(r.err)
		r.err = classify(r.err)
	}
	return replies
}

// sendKnown sends some of the commands by the SHA-1 of their scripts, and those that the
// server does not know again by their source.
func (w *clientWire) sendKnown(ctx context.Context, cmds []command, replies []reply, which []int) {
	w.sendOnce(ctx, cmds, replies, which, false)
	var unknown []int
	for _, i := range which {
		if err := replies[i].err; err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			unknown = append(unknown, i)
		}
	}
	if len(unknown) > 0 {
		w.sendOnce(ctx, cmds, replies, unknown, true)
	}
}

func (w *clientWire) sendOnce(ctx context.Context, cmds []command, replies []reply, which []int, source bool) {
	sent := make([]*redis.Cmd, len(which))
	for j, i := range which {
		s := scripts[cmds[i].op]
		verb, name := "evalsha", s.sha
		if source {
			verb, name = "eval", s.source
		}
		sent[j] = redis.NewCmd(ctx, append([]any{verb, name}, cmds[i].arguments()...)...)
	}
	var err error
	if len(sent) == 1 {
		err = w.client.Process(ctx, sent[0])
	} else {
		pipe := w.client.Pipeline()
		for _, c := range sent {
			_ = pipe.Process(ctx, c) // only queues it
		}
		_, err = pipe.Exec(ctx)
	}
	for j, i := range which {
		r := &replies[i]
		value, cerr := sent[j].Result()
		switch {
		case cerr != nil:
			r.err = cerr
		case value == nil && err != nil:
			r.err = err // a pipeline that got no connection leaves its commands untouched
		default:
			r.answer, r.err = parseAnswer(&cmds[i], value)
		}
	}
}

// listen receives on a connection outside of the client's pool.
func (w *clientWire) listen(ctx context.Context, channel string, up func(), message func(string)) error {
	subscription := w.client.Subscribe(ctx)
	closing := sync.OnceFunc(func() { _ = subscription.Close() }) // nothing is left to be lost
	defer closing()
	stop := context.AfterFunc(ctx, closing) // ends a Receive
	defer stop()
	if err := subscription.Subscribe(ctx, channel); err != nil {
		return classify(err)
	}
	confirmed, asked := false, false
	for {
		m, err := subscription.ReceiveTimeout(ctx, w.check)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && isTimeout(err) && confirmed && !asked:
			if err := subscription.Ping(ctx); err != nil {
				return err
			}
			asked = true
			continue
		case err != nil:
			return classify(err)
		}
		asked = false
		switch m := m.(type) {
		case *redis.Subscription:
			if m.Kind == "subscribe" {
				confirmed = true
				up()
			}
		case *redis.Message:
			message(m.Payload)
		}
	}
}
