package redislock

import (
	"context"
	"runtime"
	"slices"
	"time"
)

// send queues the calls. A worker calls their done functions; if the lane is closed, send
// does.
func (l *lane) send(calls ...*call) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		refuse(calls)
		return
	}
	for _, c := range calls {
		c.queued = true
	}
	l.queue = append(l.queue, calls...)
	l.spawn()
	l.mu.Unlock()
}

// spawn starts one more worker if calls are queued and one more batch may be under way.
// l.mu is held.
func (l *lane) spawn() {
	if l.mayBatch() && len(l.queue) > l.withdrawnCalls {
		l.active++
		l.workers.Add(1)
		go l.work()
	}
}

// work sends one batch after the other until the queue is empty.
func (l *lane) work() {
	defer l.workers.Done()
	for {
		// Callers that are about to send something join this batch.
		runtime.Gosched()
		b := l.take()
		if b == nil {
			return
		}
		if !l.deliver(b) {
			return
		}
	}
}

// take returns the next batch. If there is none, it returns nil, and the worker that called it
// is no longer counted as active.
func (l *lane) take() *batch {
	b := batches.Get().(*batch)
	l.mu.Lock()
	i := 0
	for ; i < len(l.queue) && len(b.calls) < maxBatch; i++ {
		c := l.queue[i]
		if !c.queued {
			l.withdrawnCalls--
			continue
		}
		c.queued = false
		b.add(c)
	}
	l.queue = slices.Delete(l.queue, 0, i)
	if len(b.calls) == 0 {
		l.active--
		l.mu.Unlock()
		b.free()
		return nil
	}
	l.underWay = append(l.underWay, b)
	l.batched += len(b.calls)
	l.mu.Unlock()
	return b
}

// deliver sends a batch and passes the replies to the senders. It reports whether the
// worker goes on: it does not if another one has replaced it and there is no room for both.
func (l *lane) deliver(b *batch) (goOn bool) {
	overdue := time.AfterFunc(patience, func() { l.giveUp(b) })
	late := time.AfterFunc(l.timeout, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.replace(b)
	})
	ctx, cancel := context.WithTimeout(l.ctx, l.timeout)
	sent := time.Now()
	l.wire.run(ctx, b.cmds, b.replies)
	cancel()
	unknown := overdue.Stop()
	unknown = late.Stop() && unknown
	now := time.Now()
	l.noteQuickness(sent, now, b.replies)

	l.mu.Lock()
	b.back, goOn = true, true
	l.batched -= len(b.calls)
	l.underWay = slices.DeleteFunc(l.underWay, func(other *batch) bool { return other == b })
	l.markSilent(b, false)
	l.noteRoundTrip(sent, now)
	if b.replaced {
		l.overdue--
		if goOn = l.mayBatch(); goOn {
			l.active++
		}
	}
	for i, c := range b.calls {
		if c.done == nil {
			b.calls[i] = nil // its sender may reuse it once it is answered
			c.answer(sent, b.replies[i])
		}
	}
	l.mu.Unlock()
	for i, c := range b.calls {
		if c != nil {
			c.finish(sent, b.replies[i])
		}
	}
	if unknown {
		b.free()
	}
	return goOn
}

// replaceAll starts other workers beside the batches that are under way, whose connections
// may be dead.
func (l *lane) replaceAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.underWay {
		l.replace(b)
	}
}

// replace starts another worker in place of the one of a batch that takes too long, or whose
// connection may be dead. The old worker stays with its batch. l.mu is held.
func (l *lane) replace(b *batch) {
	if b.back || b.replaced || l.overdue >= maxOverdue {
		return
	}
	b.replaced = true
	l.overdue++
	l.active--
	l.markSilent(b, false)
	l.spawn()
}

// giveUp answers the callers in exchange with an error: those of an overdue batch, if b is
// not nil, and those in the queue.
func (l *lane) giveUp(b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b != nil {
		if b.back {
			return
		}
		l.markSilent(b, !b.replaced)
		for _, c := range b.calls {
			if c.done == nil {
				c.answer(time.Time{}, reply{err: silence(patience)})
			}
		}
	}
	for _, c := range l.queue {
		if c.queued && c.done == nil {
			c.queued = false
			l.withdrawnCalls++
			c.answer(time.Time{}, reply{err: silence(patience), sentOnce: true})
		}
	}
	l.roundTripAt = time.Time{} // a silent server is not near
}

// markSilent notes whether a worker's batch was given up, so that no caller in exchange
// waits behind it. l.mu is held.
func (l *lane) markSilent(b *batch, silent bool) {
	if b.silent == silent {
		return
	}
	if b.silent = silent; silent {
		l.silent++
	} else {
		l.silent--
	}
}
