package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lockaround/lockaround/core/lab/faults/history"
	"github.com/lockaround/lockaround/core/lab/faults/link"
	"github.com/lockaround/lockaround/core/lab/faults/resource"
	"github.com/lockaround/lockaround/core/lab/internal/server"
)

// world is what a run takes place in: a store, a link to it for each worker, and the
// resource that the locks protect. It is for one goroutine,
// and for another one that does not touch its workers.
type world struct {
	folder   string
	mutant   string
	seed     uint64
	long     int // see Job
	log      *history.Log
	store    store
	server   server.Store
	admin    admin
	mended   int64 // when the servers were last found to be well, by the history's clock
	resource *resource.Server
	links    []link.Roads
	workers  []*worker // by link
	started  int

	unwatch func() // ends what writes down when this process does not get to run, by which all links go
}

const (
	processes = 5
	clients   = 5 // of a process
	keys      = 4
)

// newWorld starts everything but the workers.
func newWorld(ctx context.Context, store store, mutant string, seed uint64, long int) (w *world, err error) {
	w = &world{store: store, mutant: mutant, seed: seed, long: long, workers: make([]*worker, processes)}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	// Not below t.TempDir: a socket's path is short.
	if w.folder, err = os.MkdirTemp("", "lockaround-faults-"); err != nil {
		return w, err
	}
	if w.log, err = history.Create(filepath.Join(w.folder, "000.jsonl")); err != nil {
		return w, err
	}
	if w.server, err = server.Open(ctx, store.Kind); err != nil {
		w.server = nil
		return w, err
	}
	if store.prepare != nil {
		if err = store.prepare(ctx, w.server.Addrs()[0]); err != nil {
			return w, err
		}
	}
	watching, unwatch := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		watch(watching, 0, w.log)
	}()
	w.unwatch = func() { unwatch(); <-watched }
	w.admin, w.mended = newAdmin(store, w.server.Addrs()), history.Now()
	if w.resource, err = resource.Serve(w.socket(), w.log.Add); err != nil {
		return w, err
	}
	for range processes {
		l, err := link.NewRoads(w.server.Addrs())
		if err != nil {
			return w, err
		}
		w.links = append(w.links, l)
	}
	return w, nil
}

// addr is where the store is that is one server.
func (w *world) addr() string { return w.server.Addrs()[0] }

func (w *world) socket() string { return filepath.Join(w.folder, "resource") }

// staff starts a worker at a link.
func (w *world) staff(at int) error {
	w.started++
	worker, err := start(Job{
		Process: w.started, Clients: clients, Keys: keys, Store: string(w.store.Kind), Addr: w.links[at].Addr(), Resource: w.socket(),
		History: filepath.Join(w.folder, fmt.Sprintf("%03d.jsonl", w.started)), Mutant: w.mutant, Seed: w.seed, Long: w.long,
	})
	if err != nil {
		return err
	}
	w.workers[at] = worker
	return nil
}

// fallen returns why a worker has ended that was to go on.
func (w *world) fallen() error {
	for _, p := range w.workers {
		if p.ended() {
			return fmt.Errorf("process %d ended before it was told to: %w", p.job.Process, errors.Join(p.err, errEnded))
		}
	}
	return nil
}

var errEnded = errors.New("nothing was to end it")

// holder returns where the worker is that has been in a critical section for the longest;
// if none gets into one in a while, any.
func (w *world) holder(ctx context.Context) (int, error) {
	at := map[int]int{}
	for i, p := range w.workers {
		at[p.job.Process] = i
	}
	who, err := w.inside(ctx, 0, func(p int) bool { _, ok := at[p]; return ok })
	return at[who.Process], err
}

// inside waits, not for long, for somebody to have been in a critical section for longer
// than that.
func (w *world) inside(ctx context.Context, least time.Duration, qualifies func(process int) bool) (resource.Holder, error) {
	const patience = 2 * time.Second
	for began := time.Now(); ; {
		who, length := w.resource.Inside(qualifies)
		if length > least || time.Since(began) > patience {
			return who, nil
		}
		if err := pass(ctx, time.Millisecond); err != nil {
			return who, err
		}
	}
}

// kill ends a worker as kill -9 does, and starts another in its place.
func (w *world) kill(at int) error {
	p := w.workers[at]
	e := history.Event{Process: p.job.Process, Op: history.Kill, Name: "kill", Call: history.Now()}
	p.Kill()
	e.Return = history.Now()
	w.log.Add(e)
	w.resource.Gone(p.job.Process)
	return w.staff(at)
}

// finish has all workers end.
func (w *world) finish(ctx context.Context) error {
	var errs []error
	for _, p := range w.workers {
		errs = append(errs, p.In.Close())
	}
	for _, p := range w.workers {
		errs = append(errs, p.finish(ctx))
	}
	return errors.Join(errs...)
}

// close ends whatever still runs, and removes the folder.
func (w *world) close() error {
	var errs []error
	for _, p := range w.workers {
		if p != nil {
			_ = p.Cont() // it may have gone
			p.Kill()
		}
	}
	for _, l := range w.links {
		errs = append(errs, l.Close())
	}
	if w.resource != nil {
		errs = append(errs, w.resource.Close())
	}
	errs = append(errs, w.admin.close())
	if w.server != nil {
		_ = w.server.Cont() // the same
		errs = append(errs, w.server.Close())
	}
	if w.unwatch != nil {
		w.unwatch()
	}
	if w.log != nil {
		errs = append(errs, w.log.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(w.folder))...)
}
