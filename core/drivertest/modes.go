package drivertest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var modeChecks = []check{
	{"SharersHoldTogether", needs(sharing), sharersHoldTogether},
	{"SharersKeepWritersOut", needs(sharing), sharersKeepWritersOut},
	{"WriterKeepsSharersOut", needs(sharing), writerKeepsSharersOut},
	{"SharersThatWaitAreLetInTogether", needs(sharing), sharersAreLetInTogether},
	{"SharerDoesNotPassAWriterThatWaits", needs(sharing), sharerDoesNotPass},
	{"ShareEndsAlone", needs(sharing), shareEndsAlone},
	{"ShareExpiresAlone", needs(sharing), shareExpiresAlone},
	{"ShareSurvivesALostReply", needs(sharing, dropping), shareSurvivesALostReply},
	{"WithdrawnWriterLetsSharersIn", needs(sharing), withdrawnWriterLetsSharersIn},
	{"ReplaceOfAShareQueuesBehindOthers", needs(sharing), replaceOfAShare},
	{"TokensRiseFromModeToMode", needs(sharing, queueing, issuingTokens), tokensRiseFromModeToMode},
	{"InspectNamesTheHolders", needs(sharing, permitting), inspectNamesTheHolders},
	{"NobodyIsTooManyUnderLoad", needs(sharing, permitting), nobodyIsTooMany},
}

// mode is how a lease is asked for.
type mode struct {
	driver.Mode
	limit int
}

var (
	write = mode{driver.Exclusive, 0}
	read  = mode{driver.Shared, 0}
)

func permit(limit int) mode { return mode{driver.Semaphore, limit} }

// room is how many may hold together beside such a lease; 0 is any number.
func (m mode) room() int {
	switch m.Mode {
	case driver.Exclusive:
		return 1
	case driver.Semaphore:
		return m.limit
	}
	return 0
}

func (f *fixture) as(m mode) driver.Request {
	r := f.request(f.key, f.long())
	r.Mode, r.Limit = m.Mode, m.limit
	return r
}

// takeAs takes a lease of a key that has room for it.
func (p *process) takeAs(m mode) *lease {
	p.f.t.Helper()
	l, err := p.acquire(p.f.prompt(), p.f.as(m))
	if err != nil {
		p.f.t.Fatalf("acquire of a key that has room, as %v: %v", m, err)
	}
	return l
}

// refusedAs fails the check unless there is no room.
func (p *process) refusedAs(m mode, why string) {
	p.f.t.Helper()
	if _, err := p.acquire(p.f.prompt(), p.f.as(m)); !isHeld(err) {
		p.f.t.Fatalf("a request as %v %s returned %v, not a *HeldError", m, why, err)
	}
}

func (p *process) queueAs(m mode) *waiter {
	p.f.t.Helper()
	return p.enqueue(p.f.as(m))
}

// lives fails the check unless the lease is held, beside others perhaps.
func (l *lease) lives() {
	l.p.f.t.Helper()
	if err := l.p.renew(l.renewal(l.ttl))[0].Err; err != nil {
		l.p.f.t.Fatalf("the lease that should be held: renew: %v", err)
	}
}

func sharersHoldTogether(f *fixture) {
	var all []*lease
	for range 3 {
		p := f.process()
		all = append(all, p.takeAs(read), p.takeAs(read))
	}
	for i, l := range all {
		l.lives()
		if i > 0 && f.caps.Tokens != driver.NoTokens {
			l.rises(all[i-1].Token, "of an earlier share that is still held")
		}
	}
	for _, l := range all {
		l.drop()
	}
	f.process().take(f.key, f.long()).drop()
}

func sharersKeepWritersOut(f *fixture) {
	a, b, c := f.process(), f.process(), f.process()
	first, second := a.takeAs(read), b.takeAs(read)
	c.refusedAs(write, "beside two that share")
	w := c.queueAs(write)
	first.drop()
	second.lives()
	w.stillWaits()
	second.drop()
	w.granted(f.handOver(), "the writer's grant after all who shared had released").drop()
}

func writerKeepsSharersOut(f *fixture) {
	a, b := f.process(), f.process()
	l := a.takeAs(write)
	b.refusedAs(read, "beside a writer")
	w := b.queueAs(read)
	l.holds()
	w.stillWaits()
	l.drop()
	w.granted(f.handOver(), "the reader's grant after a writer's release").drop()
}

func sharersAreLetInTogether(f *fixture) {
	l := f.process().takeAs(write)
	var first []*waiter
	for range 3 {
		first = append(first, f.process().queueAs(read))
	}
	writer := f.process().queueAs(write)
	behind := f.process().queueAs(read)
	l.drop()
	var all []*lease
	for _, w := range first {
		all = append(all, w.granted(f.handOver(), "the grant to one of several that share and wait"))
	}
	for _, l := range all {
		l.lives()
	}
	writer.stillWaits()
	behind.stillWaits()
	for _, l := range all {
		l.drop()
	}
	next := writer.granted(f.handOver(), "the writer's grant after all who shared had released")
	behind.stillWaits()
	next.drop()
	behind.granted(f.handOver(), "the reader's grant after the writer's release").drop()
}

func sharerDoesNotPass(f *fixture) {
	a, b, c := f.process(), f.process(), f.process()
	l := a.takeAs(read)
	writer := b.queueAs(write)
	for _, p := range []*process{a, c} {
		p.refusedAs(read, "while a writer waits")
	}
	reader := c.queueAs(read)
	writer.stillWaits()
	l.drop()
	next := writer.granted(f.handOver(), "the grant to a writer that came before a reader")
	reader.stillWaits()
	next.drop()
	reader.granted(f.handOver(), "the reader's grant after the writer's release").drop()
}

func shareEndsAlone(f *fixture) {
	a, b := f.process(), f.process()
	mine, other, theirs := a.takeAs(read), a.takeAs(read), b.takeAs(read)
	for range 2 { // a repeated release changes nothing
		mine.drop()
	}
	other.lives()
	theirs.lives()
	f.process().refusedAs(write, "beside two that share, of three")
	other.drop()
	theirs.drop()
}

func shareExpiresAlone(f *fixture) {
	a, b := f.process(), f.process()
	stays := a.takeAs(read)
	r := f.as(read)
	r.TTL = f.short()
	ends := b.brief(r)
	w := f.process().queueAs(write)
	over := ends.back.Add(ends.ttl + grace)
	f.eventually(ends.ttl+Slack, "a share that nobody renews ending", func() bool {
		stays.lives() // which renews this one alone
		return time.Now().After(over)
	})
	stays.lives()
	w.stillWaits()
	if err := ends.release(); !errors.Is(err, driver.ErrNotHeld) {
		f.t.Errorf("the release of a share that had expired returned %v, not ErrNotHeld", err)
	}
	stays.lives()
	stays.drop()
	w.granted(f.handOver(), "the writer's grant after the last share's release").drop()
}

// shareSurvivesALostReply may find that the driver gives up, but then nothing of the
// share stays and the other one does.
func shareSurvivesALostReply(f *fixture) {
	a, b := f.process(), f.peer()
	_ = a.ping() // so that connections exist
	other := b.takeAs(read)
	dropped := f.dropReply(OpAcquire)
	l, err := a.acquire(f.patient(), f.as(read))
	dropped()
	switch {
	case isHeld(err):
		f.t.Fatal("a share whose first reply was lost was refused beside another")
	case err == nil:
		l.lives()
		l.drop()
	}
	other.lives()
	other.drop()
	f.takeSoon(b)
}

func withdrawnWriterLetsSharersIn(f *fixture) {
	a, b, c := f.process(), f.process(), f.process()
	l := a.takeAs(read)
	writer := b.queueAs(write)
	reader := c.queueAs(read)
	writer.cancel()
	if _, err := writer.ended(grace+Slack, "a wait that was cancelled"); err == nil {
		f.t.Fatal("a writer was granted beside a reader")
	}
	got := reader.granted(f.cleanUp(), "the reader's grant beside another after the writer between them had withdrawn")
	l.lives()
	got.drop()
	l.drop()
}

func replaceOfAShare(f *fixture) {
	a, b, c := f.process(), f.process(), f.process()
	mine, theirs := a.takeAs(read), b.takeAs(read)
	next, err := a.acquire(f.patient(), replacing(f.as(read), mine))
	if err != nil {
		f.t.Fatalf("replacing a share when nobody waits: %v", err)
	}
	mine.gone("by another share")
	theirs.lives()
	writer := c.queueAs(write)
	again := a.enqueue(replacing(f.as(read), next))
	next.gone("while a writer waited")
	theirs.drop()
	l := writer.granted(f.handOver(), "the writer's grant after one share was replaced and the other released")
	again.stillWaits()
	l.drop()
	again.granted(f.handOver(), "the grant that replaces a share, after the writer's release").drop()
}

// tokensRiseFromModeToMode lets each of a queue in after the one before it, whose mode is another.
func tokensRiseFromModeToMode(f *fixture) {
	a, b := f.process(), f.peer()
	last := a.takeAs(write)
	var queue []*waiter
	for i, m := range []mode{read, write, read, write, write, read} {
		queue = append(queue, []*process{b, a}[i%2].queueAs(m))
	}
	for _, w := range queue {
		last.drop()
		next := w.granted(f.handOver(), "the grant of a waiter whose turn it is")
		next.rises(last.Token, "by hand-over to another mode")
		if st := f.state(f.key); !f.inspected(st.Token, next) {
			f.t.Fatalf("the holder has token %d, and by Inspect the latest grant has token %d", next.Token, st.Token)
		}
		last = next
	}
	last.drop()
}

func inspectNamesTheHolders(f *fixture) {
	if st := f.state(f.key); st.Held || len(st.Holders) != 0 {
		f.t.Fatalf("of a key that nobody uses, Inspect says %+v", st)
	}
	took := time.Now()
	a, b := f.process().takeAs(read), f.process().takeAs(permit(4))
	st := f.state(f.key)
	if len(st.Holders) == 0 {
		f.t.Skip("the driver's Inspect does not tell who holds")
	}
	holders := slices.Clone(st.Holders)
	slices.SortFunc(holders, func(x, y driver.Holder) int { return int(x.Mode) - int(y.Mode) })
	if len(holders) != 2 || !st.Held {
		f.t.Fatalf("with two holders, Inspect says %+v", st)
	}
	for i, l := range []*lease{a, b} {
		h, want := holders[i], []mode{read, permit(4)}[i]
		switch {
		case h.Mode != want.Mode || h.Limit != want.limit:
			f.t.Errorf("Inspect says that %v holds as %v with limit %d", want, h.Mode, h.Limit)
		case h.Token != l.Token:
			f.t.Errorf("Inspect says token %d of a lease with token %d", h.Token, l.Token)
		case h.Remaining <= 0 || h.Remaining > l.ttl+time.Millisecond:
			f.t.Errorf("Inspect says that %v remain of a lease of %v", h.Remaining, l.ttl)
		case h.Since.Sub(took).Abs() > time.Hour: // by the store's clock
			f.t.Errorf("Inspect says that a lease taken at %v was granted at %v", took, h.Since)
		case h.Kept:
			f.t.Error("Inspect says of a lease that is held that it has been released")
		}
	}
	a.drop()
	b.drop()
}

// nobodyIsTooMany counts who is inside, from before the store's grant was known to
// after it was given back.
func nobodyIsTooMany(f *fixture) {
	const processes, callers, rounds = 3, 4, 6
	var (
		mu      sync.Mutex
		inside  []mode
		most    int
		running sync.WaitGroup
		failure = make(chan error, processes*callers)
	)
	enter := func(m mode) {
		mu.Lock()
		defer mu.Unlock()
		inside = append(inside, m)
		most = max(most, len(inside))
		for _, other := range inside {
			if room := other.room(); room > 0 && len(inside) > room {
				select {
				case failure <- fmt.Errorf("%v hold together", inside):
				default: // one is enough
				}
			}
		}
	}
	stay := func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		if most < 2 {
			return 100 * time.Millisecond
		}
		return 5 * time.Millisecond
	}
	leave := func(m mode) {
		mu.Lock()
		defer mu.Unlock()
		i := slices.Index(inside, m)
		inside = slices.Delete(inside, i, i+1)
	}
	ctx := f.patient()
	for range processes {
		p := f.process()
		for c := range callers {
			running.Go(func() {
				for i := range rounds {
					m := []mode{read, permit(2), write, permit(3)}[(c+i)%4]
					r := f.as(m)
					r.Wait = true
					l, err := acquireAnew(ctx, p, r)
					if err == nil {
						enter(m)
						linger(stay()) // a store may tell one after the other of a grant that they share
						leave(m)
						err = p.s.Release(ctx, []driver.Ending{l.ending()})[0]
					}
					if err != nil {
						failure <- err
						return
					}
				}
			})
		}
	}
	f.finish(&running, "the load")
	select {
	case err := <-failure:
		f.t.Fatalf("under load: %v", err)
	default:
	}
	if most < 2 {
		f.t.Error("nobody ever held together")
	}
	if st := f.state(f.key); st.Held || st.Waiting != 0 {
		f.t.Errorf("after the load, Inspect says %+v", st)
	}
}

var lowerChecks = []check{
	{"LoweredLeaseLetsSharersIn", needs(sharing), loweredLetsSharersIn},
	{"LoweredLeaseKeepsWritersOut", needs(sharing), loweredKeepsWritersOut},
	{"LoweringALostLeaseCreatesNone", needs(sharing), loweringCreatesNone},
	{"LoweringSurvivesALostReply", needs(sharing, dropping), loweringSurvivesALostReply},
}

// lower turns an exclusive lease into a share.
func (l *lease) lower() driver.Renewed {
	l.p.f.t.Helper()
	r := l.renewal(l.p.f.long())
	r.Share = true
	return l.p.renew(r)[0]
}

// lowers does so with a lease that is held.
func (l *lease) lowers() {
	l.p.f.t.Helper()
	if err := l.lower().Err; err != nil {
		l.p.f.t.Fatalf("lowering a lease that is held: %v", err)
	}
}

func loweredLetsSharersIn(f *fixture) {
	l := f.process().takeAs(write)
	waiting := []*waiter{f.process().queueAs(read), f.process().queueAs(read)}
	for _, w := range waiting {
		w.stillWaits()
	}
	l.lowers()
	var all []*lease
	for _, w := range waiting {
		all = append(all, w.granted(f.handOver(), "the grant to a reader after the writer's lease was lowered"))
	}
	all = append(all, f.process().takeAs(read))
	for range 2 { // what is lowered stays so
		l.lowers()
	}
	for _, l := range append(all, l) {
		l.lives()
		l.drop()
	}
	f.process().takeAs(write).drop()
}

func loweredKeepsWritersOut(f *fixture) {
	a, b := f.process(), f.process()
	l := a.takeAs(write)
	w := b.queueAs(write)
	l.lowers()
	w.stillWaits()
	l.lives()
	b.refusedAs(write, "beside a lease that was lowered")
	if st := f.state(f.key); st.Waiting != 1 {
		f.t.Errorf("with a writer that waits for a lease that was lowered, Inspect says %+v", st)
	}
	w.stillWaits()
	l.drop()
	w.granted(f.handOver(), "the writer's grant after the release of a lease that was lowered").drop()
}

func loweringCreatesNone(f *fixture) {
	a, b := f.process(), f.process()
	l := a.takeAs(write)
	l.drop()
	if err := l.lower().Err; !errors.Is(err, driver.ErrNotHeld) {
		f.t.Errorf("lowering a lease that was released returned %v, not ErrNotHeld", err)
	}
	next := b.takeAs(write)
	if err := l.lower().Err; !errors.Is(err, driver.ErrNotHeld) {
		f.t.Errorf("lowering a lease that another one follows returned %v, not ErrNotHeld", err)
	}
	a.refusedAs(read, "beside a writer, after an older lease was lowered")
	next.holds()
	next.drop()
}

func loweringSurvivesALostReply(f *fixture) {
	a, b := f.process(), f.peer()
	l := a.takeAs(write)
	dropped := f.dropReply(OpRenew)
	if err := l.lower().Err; errors.Is(err, driver.ErrNotHeld) {
		f.t.Fatal("a lowering whose first reply was lost reported its lease as not held")
	}
	dropped()
	l.lowers() // as who has no answer repeats it
	other := b.takeAs(read)
	l.lives()
	l.drop()
	other.drop()
	b.takeAs(write).drop()
}
