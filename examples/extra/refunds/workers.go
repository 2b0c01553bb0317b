package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/serial"
)

// Refund is what clients ask for.
type Refund struct {
	OrderID string
	Number  int // of the refunds of its order, in the order in which they were asked for
}

// event is the beginning or the end of a refund at the provider.
type event struct {
	Refund
	Worker string
	Begins bool
	At     time.Time
}

// provider is what pays money back, called by a worker.
type provider struct {
	worker string
	takes  time.Duration
	tell   func(event)
}

// Refund pays back. A worker that dies meanwhile has paid nothing.
func (p *provider) Refund(ctx context.Context, r Refund) error {
	began := time.Now()
	if run, ok := serial.RunFrom(ctx); ok {
		began = run.Started // a busy machine may come here later
	}
	p.tell(event{r, p.worker, true, began})
	select {
	case <-time.After(p.takes):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.tell(event{r, p.worker, false, time.Now()})
	return nil
}

// newRefunds puts a queue before the provider.
func newRefunds(d driver.Driver, namespace string, store queue.Store, p *provider, limit time.Duration) (*core.Engine, *serial.Func[Refund], error) {
	locks, err := core.New(d, core.WithNamespace(namespace), core.WithLogger(slog.New(slog.DiscardHandler))) // the dead would have much to say
	if err != nil {
		return nil, nil, err
	}
	refunds, err := serial.New(locks, core.Policy{Name: namespace, Key: "refund:{OrderID}", TTL: ttl}, store, p.Refund,
		serial.Policy{Spacing: limit, OnDead: serial.Hold})
	return locks, refunds, err
}

// workers run what is queued.
type workers struct {
	refunds *serial.Func[Refund] // for who enqueues
	kill    func(name string)
	stop    func()
}

// inMemory starts workers that share this process's memory, each with an engine of its own.
func inMemory(ctx context.Context, o options, tell func(event)) (*workers, error) {
	locks, store := memlock.New(), queue.NewMemory()
	ctx, cancel := context.WithCancel(ctx)
	w := &workers{}
	byName := make(map[string]*mortal)
	var ends []func()
	w.stop = func() {
		cancel()
		for _, end := range ends {
			end()
		}
	}
	w.kill = func(name string) { byName[name].dead.Store(true) }
	for i := range o.processes {
		name := fmt.Sprint("w", i+1)
		m := &mortal{Driver: locks, Store: store}
		byName[name] = m
		life, die := context.WithCancel(ctx)
		p := &provider{name, o.takes, func(e event) {
			if m.dead.Load() {
				die()
				return // it has reached nobody
			}
			tell(e)
		}}
		engine, refunds, err := newRefunds(mortalDriver{m}, "refunds", mortalStore{m}, p, o.limit)
		if err != nil {
			return nil, err
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = refunds.Work(life) // until the end
		}()
		ends = append(ends, func() { <-ended; _ = engine.Close() })
	}
	engine, refunds, err := newRefunds(locks, "refunds", store, &provider{}, o.limit)
	if err != nil {
		return nil, err
	}
	ends = append(ends, func() { _ = engine.Close() })
	w.refunds = refunds
	return w, nil
}

// mortal is what a worker reaches of the stores: nothing, once it is dead.
type mortal struct {
	driver.Driver
	queue.Store
	dead atomic.Bool
}

var errDead = errors.New("this worker is dead")

type (
	mortalDriver  struct{ *mortal }
	mortalSession struct {
		driver.Session
		*mortal
	}
	mortalStore struct{ *mortal }
	mortalQueue struct {
		queue.Queue
		*mortal
	}
)

func (d mortalDriver) Capabilities() driver.Capabilities { return d.Driver.Capabilities() }

func (d mortalDriver) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	return mortalSession{s, d.mortal}, err
}

func (s mortalSession) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	if s.dead.Load() {
		all := make([]driver.Renewed, len(rs))
		for i := range all {
			all[i].Err = errDead
		}
		return all
	}
	return s.Session.Renew(ctx, rs)
}

func (s mortalSession) Release(ctx context.Context, rs []driver.Ending) []error {
	if s.dead.Load() {
		all := make([]error, len(rs))
		for i := range all {
			all[i] = errDead
		}
		return all
	}
	return s.Session.Release(ctx, rs)
}

func (s mortalStore) Open(name string, r queue.Rules) (queue.Queue, error) {
	q, err := s.Store.Open(name, r)
	return mortalQueue{q, s.mortal}, err
}

func (q mortalQueue) Claim(ctx context.Context, r queue.ClaimRequest) (queue.Claims, error) {
	if q.dead.Load() {
		return queue.Claims{}, errDead
	}
	return q.Queue.Claim(ctx, r)
}

func (q mortalQueue) End(ctx context.Context, h queue.Holder, e queue.Ending) (queue.Step, error) {
	if q.dead.Load() {
		return queue.Step{}, errDead
	}
	return q.Queue.End(ctx, h, e)
}

// workInStore is the program of a worker process. It writes what happens to stdout.
func workInStore(ctx context.Context, o options, stdout io.Writer) error {
	st, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = st.close() }() // the process ends
	p := &provider{o.worker, o.takes, func(e event) { _ = json.NewEncoder(stdout).Encode(e) }}
	locks, refunds, err := newRefunds(st.locks, o.namespace, st.queues, p, o.limit)
	if err != nil {
		return err
	}
	defer locks.Close()
	if err := refunds.Work(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

// processes starts workers that are processes of their own.
func processes(ctx context.Context, o options, tell func(event)) (*workers, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program to start it again: %w", err)
	}
	st, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	locks, refunds, err := newRefunds(st.locks, o.namespace, st.queues, &provider{}, o.limit)
	if err != nil {
		return nil, errors.Join(err, st.close())
	}
	w := &workers{refunds: refunds}
	byName := make(map[string]*exec.Cmd)
	w.kill = func(name string) { _ = byName[name].Process.Kill() }
	w.stop = func() {
		for _, p := range byName {
			_ = p.Process.Signal(os.Interrupt)
			_ = p.Wait()
		}
		_ = locks.Close()
		st.clean(context.WithoutCancel(ctx))
		_ = st.close()
	}
	for i := range o.processes {
		name := fmt.Sprint("w", i+1)
		p := exec.CommandContext(ctx, program, append(o.store(), "-limit", o.limit.String(), "-takes", o.takes.String(), "-worker", name, "-namespace", o.namespace)...)
		p.Stderr, p.WaitDelay = os.Stderr, time.Second
		out, err := p.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := p.Start(); err != nil {
			return nil, err
		}
		byName[name] = p
		go func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				var e event
				if json.Unmarshal(lines.Bytes(), &e) == nil {
					tell(e)
				}
			}
		}()
	}
	return w, nil
}
