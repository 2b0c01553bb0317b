package serial_test

import (
	"testing"

	"github.com/lockaround/lockaround/decorator/serial/serialtest"
)

// Where a mistake is to be found: by the suite of stores, or by the tests of workers, or
// by the checker of histories over processes.
const (
	bySuite   = "../queue ^TestMemoryConforms$"
	byRedis   = "../queue/redisqueue ^TestConformance$"
	byTrips   = "../queue/redisqueue ^Test(Calls|Error|Caller)"
	byWorkers = ". ^Test(Items?|Starts|Spacing|Store|Late|Work|Claims|Run|Panic|Failed|Function|Direct|Many|Key|Idle)"
	byHistory = ". ^TestHistoryOverProcesses$"
)

var mistakesOfSerial = []struct{ name, by, file, old, bug string }{
	{"a key is claimed by two workers", bySuite, "../queue/memory.go", "\t\tl.worker = r.Worker\n\t\tq.schedule(l, now.Add(r.For))\n", "\t\tl.worker = r.Worker\n\t\tq.schedule(l, now.Add(time.Nanosecond))\n"},
	{"a smaller token begins", bySuite, "../queue/memory.go", "case h.Token < l.token || h.Token == l.token && l.over && l.last != runName{}:", "case h.Token == l.token && l.over && l.last != runName{}:"},
	{"a token that has ended its run begins again", bySuite, "../queue/memory.go", "case h.Token < l.token || h.Token == l.token && l.over && l.last != runName{}:", "case h.Token < l.token:"},
	{"a token that has found nothing begins later", bySuite, "../queue/memory.go", "case h.Token == l.token && l.over:\n", "case false:\n"},
	{"the late end of a superseded worker counts", bySuite, "../queue/memory.go", "if l == nil || h.Token != l.token {", "if l == nil || len(l.items) == 0 {"},
	{"an end of another attempt counts", bySuite, "../queue/memory.go", "case l.running && l.run() == ended:", "case l.running && l.items[0].sequence == ended.sequence:"},
	{"an end is not known when it is repeated", bySuite, "../queue/memory.go", "l.running, l.over, l.last = false, true, ended", "l.running, l.over = false, true"},
	{"a repeated begin counts again", bySuite, "../queue/memory.go", "case l.running: // the answer was lost", "case l.running: // the answer was lost\n\t\t\thead.attempts++"},
	{"attempts of the dead do not count", bySuite, "../queue/memory.go", "h.Token, false, false, runName{}", "h.Token, false, false, runName{}\n\t\tif len(l.items) > 0 {\n\t\t\tl.items[0].attempts = 0\n\t\t}"},
	{"spacing is forgotten after a crash", bySuite, "../queue/memory.go", "h.Token, false, false, runName{}", "h.Token, false, false, runName{}\n\t\tl.next = now"},
	{"spacing is from end to start", bySuite, "../queue/memory.go", "l.next = l.begun.Add(q.rules.Spacing + e.Late)", "l.next = now.Add(q.rules.Spacing + e.Late)"},
	{"a late start is not reckoned", bySuite, "../queue/memory.go", "l.next = l.begun.Add(q.rules.Spacing + e.Late)", "l.next = l.begun.Add(q.rules.Spacing)"},
	{"a crashed run has no grace", bySuite, "../queue/memory.go", "l.next = now.Add(q.rules.Spacing + h.Grace)", "l.next = now.Add(q.rules.Spacing)"},
	{"a failed item goes behind the others", bySuite, "../queue/memory.go", "if at := now.Add(e.After); at.After(l.next) {", "l.items = append(l.items[1:], l.items[0])\n\t\t\tif at := now.Add(e.After); at.After(l.next) {"},
	{"a failed item runs at once", bySuite, "../queue/memory.go", "if at := now.Add(e.After); at.After(l.next) {", "if at := now; at.After(l.next) {"},
	{"a repeated append is another item", bySuite, "../queue/memory.go", "if e := l.byID[n.ID]; e != nil {", "if e := l.byID[n.ID]; e != nil && len(l.items) == 0 {"},
	{"a full queue takes one more", bySuite, "../queue/memory.go", "if len(l.items) >= q.rules.MaxLength {", "if len(l.items) > q.rules.MaxLength {"},
	{"a claim is nobody's", bySuite, "../queue/memory.go", "l != nil && l.worker == r.Worker {\n\t\t\tq.schedule", "l != nil {\n\t\t\tq.schedule"},
	{"a claim never ends", bySuite, "../queue/memory.go", "\t\tl.worker = r.Worker\n\t\tq.schedule(l, now.Add(r.For))", "\t\tl.worker = r.Worker\n\t\tq.schedule(l, now.Add(r.For+time.Hour))"},
	{"a parked key goes on by itself", bySuite, "../queue/memory.go", "for len(l.items) > 0 && !l.parked && s.Item == nil {", "for len(l.items) > 0 && s.Item == nil {\n\t\tl.parked = false"},
	{"a cascade ends one item", bySuite, "../queue/memory_line.go", "case Cascade:", "case Cascade + 1:"},
	{"listeners are not told", bySuite, "../queue/memory.go", "for e := range s.listeners {", "for e := range map[*listener]bool{} {"},
	{"what has ended is kept for ever", bySuite, "../queue/memory_line.go", "now.Sub(l.ended[0].ended) >= r.KeepFor", "false"},
	{"sequences begin anew", bySuite, "../queue/memory.go", "sequence: now.UnixMicro() - 1,", "sequence: 0*now.UnixMicro(),"},

	{"Redis: a smaller token begins", byRedis, "../queue/redisqueue/begin.lua", "if token < k.token or token == k.token and k.over == 1 and k.lseq > 0 then", "if token == k.token and k.over == 1 and k.lseq > 0 then"},
	{"Redis: tokens are numbers", byRedis, "../queue/redisqueue/begin.lua", "if token < k.token or", "if tonumber(token) < tonumber(k.token) or"},
	{"Redis: the late end of a superseded worker counts", byRedis, "../queue/redisqueue/end.lua", "if ARGV[a + 1] ~= k.token then", "if false then"},
	{"Redis: spacing is forgotten after a crash", byRedis, "../queue/redisqueue/begin.lua", "k.token, k.over, k.run, k.lseq, k.latt = token, 0, 0, 0, 0", "k.token, k.over, k.run, k.lseq, k.latt, k.next = token, 0, 0, 0, 0, 0"},
	{"Redis: the attempt is counted after the run", byRedis, "../queue/redisqueue/key.lua", "k.att = k.att + 1", "k.att = math.max(k.att, 1)"},
	{"Redis: items that wait expire", byRedis, "../queue/redisqueue/key.lua", "redis.call('SET', K, is)\n", "redis.call('SET', K, is, 'PX', 1000)\n"},
	{"Redis: what has died with another is alive until it is removed", byRedis, "../queue/redisqueue/key.lua", "tonumber(string.sub(old, 2)) < k.head then", "false then"},
	{"Redis: the rest of a cascade is nobody's", byRedis, "../queue/redisqueue/key.lua", "    if k.fallen == 0 then\n      set", "    if true then\n      set"},
	{"Redis: what is stored last is that of the first key", byTrips, "../queue/redisqueue/each.lua", "if changed then", "if changed and #answers == 1 then"},
	{"Redis: an error of one key is that of all", byTrips, "../queue/redisqueue/each.lua", "pcall(one, n)", "true, one(n)"},
	{"Redis: a call whose caller has left is sent", byTrips, "../queue/redisqueue/trips.go", "if c.ctx.Err() == nil {", "if true {"},

	{"a worker goes on although somebody waits for the lock", byWorkers, "run.go", "case <-lease.Contended():\n\t\treturn false", "case <-lease.Contended():\n\t\treturn true"},
	{"a worker begins more when it is to end", byWorkers, "run.go", "if w.ctx.Err() != nil || lease.Err() != nil || w.lock.MaxHold > 0 {", "if lease.Err() != nil || w.lock.MaxHold > 0 {"},
	{"a run ends with Work's context", byWorkers, "run.go", "lease.Context(context.WithoutCancel(w.ctx))", "lease.Context(w.ctx)"},
	{"a worker waits for the lock as one of few", byWorkers, "run.go", "h.waits = true\n\t\t\tw.waiting++", "h.waits = false"},
	{"a worker that ends keeps its claims", byWorkers, "work.go", "\tw.giveBack()\n", "\n"},
	{"an unanswered end is not repeated", byWorkers, "run.go", "if errors.Is(err, queue.ErrDamaged) || over", "if true || over"},
	{"a worker takes no lock of the key", byWorkers, "run.go", "p.Key = h.key\n", "p.Key = h.key + w.name\n"},
	{"a worker hears nothing", byWorkers, "work.go", "\tw.listening.Go(w.listen)\n", ""},

	{"an item is done when it is begun", byHistory, "../queue/redisqueue/key.lua", "k.run, k.over, k.begun = 1, 0, now", "k.run, k.over, k.begun = 1, 0, now\n      if k.att > 1 then redis.call('LPOP', Q) k.len = k.len - 1 k.head = k.head + 1 item = nil end"},
	{"two workers have one key", byHistory, "run.go", "p.Key = h.key\n", "p.Key = h.key + w.name\n"},
	{"a worker forgets half of the spacing", byHistory, "../queue/redisqueue/end.lua", "k.next = k.begun + spacing + tonumber(ARGV[a + 9])", "k.next = k.begun + spacing / 2"},
	{"attempts begin anew with each worker", byHistory, "../queue/redisqueue/begin.lua", "k.token, k.over, k.run, k.lseq, k.latt = token, 0, 0, 0, 0", "k.token, k.over, k.run, k.lseq, k.latt, k.att = token, 0, 0, 0, 0, 0"},
	{"a failure is passed over", byHistory, "run.go", "e.Outcome, e.After = queue.Retry,", "e.Outcome, e.After = queue.Done,"},
}

// TestMistakesOfSerialFunctionsAreFound puts one mistake after the other into stores and workers,
// and expects the tests to fail that are to find it.
func TestMistakesOfSerialFunctionsAreFound(t *testing.T) {
	for _, m := range mistakesOfSerial {
		t.Run(m.name, func(t *testing.T) {
			serialtest.Mistake{File: m.file, Old: m.old, New: m.bug, By: m.by, Flags: []string{"-timeout=3m", "-skip", "FewRoundTrips$"}}.MustBeFound(t)
		})
	}
}
