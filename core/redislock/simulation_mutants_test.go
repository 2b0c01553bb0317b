package redislock_test

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/internal/testkit"
)

// mutant is a bug that the simulation has to find, or tests of the engine.
type mutant struct {
	name string
	from int    // a seed, at which it was found; the simulation goes on from there
	core string // pattern of the engine's tests; empty for the simulation
	in   string // their folder, from the module's core folder
	file string // from the module's core folder
	old  string // occurs once in it
	bug  string // in its place
}

var mutants = []mutant{
	{
		name: "the deadline counts from the reply", from: 1629, file: "redislock/answer.go",
		old: "\t\tif p.queued && (p.holderEnds",
		bug: "\t\tc.sent = time.Now()\n\t\tif p.queued && (p.holderEnds",
	},
	{
		name: "a pushed lease counts from the push", file: "redislock/answer.go",
		old: "since := p.confirmedSince\n",
		bug: "since := time.Now()\n",
	},
	{
		name: "a given-up owner is not ended", file: "redislock/acquire.go",
		old: "if p.sent && !p.leftNothing {",
		bug: "if false {",
	},
	{
		name: "hand-offs share one token", file: "internal/manager/steps.go",
		old: "number: l.handoffs,",
		bug: "number: 0,",
	},
	{
		name: "a pushed lease counts from a refresh that was not answered", from: 294, file: "redislock/acquire.go",
		old: "p.unanswered = append(p.unanswered, rq)",
		bug: "p.confirmedSince = now\n\tp.unanswered = append(p.unanswered, rq)",
	},
	{
		name: "a place is not refreshed", file: "redislock/acquire.go",
		old: "(0.28 + 0.04*p.s.jitter())",
		bug: "(28 + 0.04*p.s.jitter())",
	},
	{
		name: "a release does not reach the store", file: "internal/manager/steps.go",
		old: "if mgr.prompt != nil && ctx.Err() == nil && leaves",
		bug: "if ctx != nil {\n\t\treturn nil\n\t}\n\tif mgr.prompt != nil && ctx.Err() == nil && leaves",
	},
	{
		name: "renewal goes on after the release", file: "internal/manager/steps.go",
		old: "err := mgr.returnLease(ctx, end, now)",
		bug: "err := mgr.returnLease(ctx, end, now)\n" +
			"mgr.workers.Go(func() { for n := 0; n < 20 && mgr.ctx.Err() == nil; n++ { time.Sleep(l.length / 3); mgr.session.Renew(mgr.ctx, []driver.Renewal{{ID: end.ID, TTL: l.length}}) } })",
	},
	{
		name: "a caller that left is granted the key", file: "internal/manager/acquire.go",
		old: "\tln.remove(w)\n\tswitch {\n\tcase cancelled:",
		bug: "\tswitch {\n\tcase cancelled:",
	},
	{
		name: "a release does not wake the callers behind it", file: "internal/manager/release.go",
		old: "ln.move(l, s, now)\n\t\treturn leaseStays, r",
		bug: "ln.unlink(l, now)\n\t\treturn leaseStays, r",
	},
	{
		name: "a lease that was lowered is handed on", file: "internal/manager/decide.go",
		old: "!s.fresh && (s.lowered || s.mode == driver.Shared",
		bug: "!s.fresh && (s.mode == driver.Shared",
	},
	{
		name: "the first reader to leave takes the share along", file: "internal/manager/steps.go",
		old: "held: l.hold != nil,",
		bug: "held: false,",
	},
	{
		name: "the first of several keys is kept when the next cannot be had", file: "internal/manager/several.go",
		old: "releaseUnused(s.ctx, append(s.holds, s.beyond...), len(s.holds),",
		bug: "releaseUnused(s.ctx, s.beyond, 0,",
	},
	{
		name: "who waits for one of several keys gives the keys beyond it back late", core: "^TestCarts$", in: "internal/manager", file: "internal/manager/several.go",
		old: "releaseBehind(s.beyond, 0)",
		bug: "late := s.beyond\n\t\ttime.AfterFunc(time.Millisecond, func() { releaseBehind(late, 0) })",
	},
	{
		name: "who asks for several keys passes those who wait for one", core: "^TestCarts$", in: "internal/manager", file: "internal/manager/line.go",
		old: "\tw.line, w.prev = ln, ln.last\n",
		bug: "\tif w.tries && ln.first != nil {\n\t\tw.line, w.next, ln.first.prev, ln.first = ln, ln.first, w, w\n\t\tln.lock.waiting++\n\t\treturn\n\t}\n\tw.line, w.prev = ln, ln.last\n",
	},
	{
		name: "one more than MaxWaiting is let wait", core: "^TestMaxWaiting", file: "internal/manager/bound.go",
		old: "case int(lk.known()) > most:",
		bug: "case int(lk.known()) > most+1:",
	},
	{
		name: "callers are refused while the key may have room for them", core: "^TestMaxWaiting", file: "internal/manager/bound.go",
		old: "\treturn max(writers-1, 0) + max(permits-limit, 0)\n",
		bug: "\treturn lk.patient + limit - limit\n",
	},
	{
		name: "a lease lingers although another process wants it", from: 77, file: "internal/manager/decide.go",
		old: "s.room && !s.contended && !s.lowered",
		bug: "s.room && !s.lowered",
	},
	{
		name: "a lease is not renewed", file: "internal/manager/lease.go",
		old: "if !h.over && !h.terms.NoRenew {",
		bug: "if false {",
	},
	{
		name: "a request overtakes a release that was sent", core: "^TestSent", file: "internal/manager/request.go",
		old: "rq.After, rq.follows = &end, l",
		bug: "_, rq.follows = &end, l",
	},
	{
		name: "a release that was sent and not answered is not repeated", core: "^TestSent", file: "internal/manager/steps.go",
		old: "if err != nil && !errors.Is(err, driver.ErrNotHeld) {\n\t\tmgr.releaser",
		bug: "if err != nil && !l.sent && !errors.Is(err, driver.ErrNotHeld) {\n\t\tmgr.releaser",
	},
	{
		name: "the server ends a lease for who does not own it", file: "redislock/internal/protocol/reference/call.go",
		old: "if h := l.holder(owner); h != nil {\n\t\tstatus = protocol.Ended",
		bug: "h := l.holder(owner)\n\tif h == nil && len(l.holders) > 0 {\n\t\th = l.holders[0]\n\t}\n\tif h != nil {\n\t\tstatus = protocol.Ended",
	},
	{
		name: "the deadline of a key that was taken counts from the reply", from: 2193, file: "redislock/answer.go",
		old: "case rq.takes && c.reply.value == int64(1):\n",
		bug: "case rq.takes && c.reply.value == int64(1):\n\t\tc.sent = time.Now()\n",
	},
	{
		name: "who gives up is ended and not buried", file: "redislock/acquire.go",
		old: "protocol.EndArgs{Owner: p.id.Owner, Bury: p.copies && !p.s.sharesKeys()}",
		bug: "protocol.EndArgs{Owner: p.id.Owner}",
	},
	{
		name: "a release of a request that may have a copy does not bury", file: "redislock/lease.go",
		old: "protocol.EndArgs{Owner: e.Owner, Bury: r.copies, Keep: e.Keep}",
		bug: "protocol.EndArgs{Owner: e.Owner, Keep: e.Keep}",
	},
	{
		name: "a release ahead of the next request does not bury", from: 896, file: "redislock/acquire.go",
		old: "releaseAsked(after.Owner, now).ending(*after)",
		bug: "releaseAsked(after.Owner, now).ending(*after)\n\t\t\tending.Bury = false",
	},
	{
		name: "a buried owner is let in", file: "redislock/internal/protocol/reference/call.go",
		old: "case !r.create, slices.Contains(l.buried, r.owner):",
		bug: "case !r.create:",
	},
	{
		name: "the owners of a free key are forgotten at once", file: "redislock/internal/protocol/reference/call.go",
		old: "keep = max(c.last(), l.buriedUntil-c.now)",
		bug: "keep = c.last()",
	},
	{
		name: "a late release deletes the next holder's string", from: 149, file: "redislock/internal/protocol/reference/call.go",
		old: "len(c.args) == 3 && l.holder(owner) != nil {",
		bug: "len(c.args) == 3 {",
	},
	{
		name: "the holder of the string is not in the hash", file: "redislock/internal/protocol/reference/call.go",
		old: "\tl.noteTrace(len(l.queue), r.owner, r.trace)\n",
		bug: "\tif c.before.thin {\n\t\tl.holders = nil\n\t}\n\tl.noteTrace(len(l.queue), r.owner, r.trace)\n",
	},
	{
		name: "SET takes a key that somebody has", file: "redislock/internal/protocol/reference/call.go",
		old: "\tif c.there {\n\t\treturn int64(0)",
		bug: "\tif c.there && len(c.lock.queue) > 0 {\n\t\treturn int64(0)",
	},
	{
		name: "a hash issues tokens of its own", file: "redislock/internal/protocol/reference/call.go",
		old: "c.grant(p.owner, p.channel, p.placeTTL, max(limit, least), p.room, text, c.draw())",
		bug: "c.grant(p.owner, p.channel, p.placeTTL, max(limit, least), p.room, text, l.token+1)",
	},
	{
		name: "a token is drawn before the key is taken", from: 1186, file: "redislock/internal/simulation/link.go",
		old: "\t\tif c.Script != \"\" {\n\t\t\tall = append(all, step{i, false})\n\t\t}\n\t\tif c.Draw {\n\t\t\tall = append(all, step{i, true})\n\t\t}\n",
		bug: "\t\tif c.Draw {\n\t\t\tall = append(all, step{i, true})\n\t\t}\n\t\tif c.Script != \"\" {\n\t\t\tall = append(all, step{i, false})\n\t\t}\n",
	},
	{
		name: "a renewal does not reach a string", file: "redislock/internal/protocol/reference/call.go",
		old: "\tif h != nil {\n\t\tif h.token == 0 {",
		bug: "\tif h != nil && !c.before.thin {\n\t\tif h.token == 0 {",
	},
}

// TestSimulationCatchesMutants puts one bug after the other into the engine and
// the driver and expects the simulation to fail, or the tests that are to find it.
func TestSimulationCatchesMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles and runs the simulation once for each bug")
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			pattern, folder, sign := "^TestSimulation$", ".", "simulation: seed "
			of := []string{"export_test.go", "simulation_test.go", "simulation_caller_test.go", "simulation_hold_test.go", "simulation_schedule_test.go"}
			if m.core != "" {
				pattern, folder, sign = m.core, filepath.Join("..", m.in), "--- FAIL: "
			}
			testkit.Mutant{
				File: filepath.Join("..", m.file), Old: m.old, Bug: m.bug, Of: of,
				Args: []string{"-p=1", "-run", pattern, folder},
				Env:  []string{counts.Asks("schedules", 8000), counts.Seed + "=" + strconv.Itoa(max(m.from, 1)), "GOMAXPROCS=1"},
				Sign: []string{sign},
			}.MustBeFound(t)
		})
	}
	t.Attr("figure-6", fmt.Sprintf("%d bugs, each caught by the simulation or by the engine's tests", len(mutants)))
}
