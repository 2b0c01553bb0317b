package stocktest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/fence/redisfence"
	"github.com/lockaround/lockaround/core/redislock"
)

// Replica is one process of the service.
type Replica struct {
	Number       int
	Locks, Stock string        // addresses of two Redis servers
	Wait, TTL    time.Duration // of its policies
}

// Patience is when a call counts as hung: what goes wrong in a test of replicas keeps one
// waiting for a TTL and a second or two.
const Patience = 2 * time.Minute

// Run serves until in ends. It prints where, and takes the orders "pause", "deaf" and
// "resume", each on a line. It prints "noted" when one is in force. After "pause" or "deaf"
// the next sale prints "holding" and waits for "resume", or for the end of its lock. One
// that is deaf does not hear of that, as a process that gets no processor.
func (r Replica) Run(in io.Reader, out io.Writer) error {
	// A store that is slow since the machine is busy is not out of reach.
	rdb := redis.NewClient(&redis.Options{Addr: r.Locks, ReadTimeout: Patience})
	locks, err := core.New(redislock.New(rdb), core.WithNamespace("integration"), core.WithStoreTimeout(Patience))
	if err != nil {
		return err
	}
	// A sale must not be sent twice.
	units := redis.NewClient(&redis.Options{Addr: r.Stock, MaxRetries: -1, ReadTimeout: Patience})
	st := &stock{rdb: units, guard: redisfence.New(units), replica: r.Number, out: out, pause: make(chan bool, 1), resume: make(chan bool)}
	s, err := Serve(locks, core.Policy{Wait: r.Wait, TTL: r.TTL}, nil, st.sell)
	if err != nil {
		return err
	}
	say := func(words ...any) {
		_, _ = fmt.Fprintln(out, words...) // whoever reads no more has ended
	}
	say(s.HTTP, s.GRPC)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if order := lines.Text(); order == "resume" {
			st.resume <- true
		} else {
			st.pause <- order == "deaf"
		}
		say("noted")
	}
	return errors.Join(s.Close(), locks.Close(), rdb.Close(), units.Close())
}

// stock is what a replica sells from.
type stock struct {
	rdb           *redis.Client
	guard         fence.Guard
	replica       int
	out           io.Writer
	pause, resume chan bool
}

// write sets the number of units and logs the sale.
var write = redisfence.NewScript(`
redis.call('SET', KEYS[1], ARGV[1])
return redis.call('RPUSH', KEYS[2], ARGV[2])`)

// sell reads the number of units and writes one less, in two requests. The guard comes
// before both: what an older holder writes after a later one has read would be sold twice.
func (s *stock) sell(ctx context.Context, _ Deduction) (Sale, error) {
	lease, ok := core.LeaseFrom(ctx)
	if !ok {
		return Sale{}, core.ErrLost
	}
	token := fence.Of(lease)[0]
	// Not cancelled with the lock: what the stock answers is the truth.
	truth := context.WithoutCancel(ctx)
	if err := s.guard.Admit(truth, token); err != nil {
		return Sale{}, err
	}
	units, err := s.rdb.Get(truth, "units").Int()
	switch {
	case err != nil:
		return Sale{}, err
	case units < 1:
		return Sale{}, errSoldOut
	}
	if err := s.paused(ctx); err != nil {
		return Sale{}, err
	}
	made := Sale{Replica: s.replica, Left: units - 1, Token: token.Number}
	line, err := json.Marshal(made)
	if err != nil {
		return Sale{}, err
	}
	return made, write.Run(truth, s.rdb, token, []string{"units", "sales"}, made.Left, line).Err()
}

// paused follows an order to pause. The error says that the lock has ended meanwhile.
func (s *stock) paused(ctx context.Context) error {
	select {
	case deaf := <-s.pause:
		lost := ctx.Done()
		if deaf {
			lost = nil
		}
		if _, err := fmt.Fprintln(s.out, "holding"); err != nil {
			return err
		}
		select {
		case <-s.resume:
		case <-lost:
			return context.Cause(ctx)
		}
	default:
	}
	return nil
}
