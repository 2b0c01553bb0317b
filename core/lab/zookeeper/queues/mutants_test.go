package queues_test

import (
	"path/filepath"
	"testing"

	"github.com/lockaround/lockaround/decorator/serial/serialtest"
)

// Where a mistake is to be found: by the suite of stores, by the tests of faults, or by the store's own.
const (
	bySuite  = ". ^TestConformance$/^1_shards$" // and a check
	byFaults = ". ^Test(WhatOthers|Shard|IdleKey|EndedItems)"
	byRecord = "../../../../decorator/queue/zkqueue ."
)

var mistakes = []struct{ name, by, file, old, bug string }{
	{"a step overwrites another one", bySuite + "/(AppendsAtOnce|NothingIsLost)", "step.go", "Data: data, Version: c.version}", "Data: data, Version: -1}"},
	{"a smaller token begins", bySuite + "/SmallerToken", "operations.go", "case h.Token < c.Token || h.Token == c.Token && c.Over && c.Last != run{}:", "case h.Token == c.Token && c.Over && c.Last != run{}:"},
	{"a token that has found nothing begins later", bySuite + "/LateCopyOfABeginThatFoundNothing", "operations.go", "case h.Token == c.Token && c.Over:\n\t\t\treturn nil", "case h.Token == c.Token && c.Over && c.Floor == 0:\n\t\t\treturn nil"},
	{"the end of another token counts", bySuite + "/EndNamesItsRun", "operations.go", "if !c.exists || h.Token != c.Token {", "if !c.exists {"},
	{"a repeated begin counts again", bySuite + "/RepeatedBegin", "change.go", "case c.Running: // the answer was lost", "case c.Running:\n\t\t\tc.Attempts++"},
	{"an end is not known when it is repeated", bySuite + "/RepeatedEnd", "change.go", "c.Running, c.Over, c.Last = false, true, ended", "c.Running, c.Over = false, true"},
	{"spacing is forgotten after a crash", bySuite + "/SpacingSurvives", "operations.go", "c.Token, c.Over, c.Running, c.Last = h.Token, false, false, run{}", "c.Token, c.Over, c.Running, c.Last, c.Next = h.Token, false, false, run{}, 0"},
	{"a key that is not due by its last write waits", bySuite + "/(ItemIsDue|RetryIsDue|SpacingIsFromStart)", "change.go", "case c.NextIn > 0, c.now < c.Next && c.exact:", "case c.NextIn > 0, c.now < c.Next:"},
	{"a key begins by an old time", bySuite + "/(NextStart|SpacingCounts)", "change.go", "\t\tcase c.now < c.Next:\n\t\t\tc.again = true\n\t\t\treturn nil\n", ""},
	{"a late start is not reckoned", bySuite + "/LateStart", "change.go", "millis(spacing) + millis(e.Late) + 1", "millis(spacing) + 1"},
	{"a crashed run has no grace", bySuite + "/CrashedRun", "change.go", "millis(spacing)+millis(h.Grace)+1", "millis(spacing)+1"},
	{"a failed item runs at once", bySuite + "/RetryWaits", "change.go", "\t\tc.NextIn = millis(e.After) + 1\n", ""},
	{"a repeated append is another item", bySuite + "/RepeatedAppend", "operations.go", "Path: id, Data: strconv.AppendInt(nil, c.Sequence+1, 10), Acl: a.q.acl})", "Path: id + strconv.FormatInt(c.Sequence, 10), Data: strconv.AppendInt(nil, c.Sequence+1, 10), Acl: a.q.acl})"},
	{"a full queue takes one more", bySuite + "/FullQueue", "operations.go", "full := c.length() >= a.q.rules.MaxLength", "full := c.length() > a.q.rules.MaxLength"},
	{"listeners are not told", bySuite + "/ListenerHears", "step.go", "if c.tells && (", "if false && ("},
	{"a cascade ends one item", bySuite + "/Cascade", "change.go", "\t\t\tc.Head = c.Sequence + 1\n", ""},
	{"a claim is nobody's", bySuite + "/Claim", "claim.go", "c.Worker != worker:", "c.Worker != worker && false:"},
	{"two workers claim a key", bySuite + "/Claim", "change.go", "c.move(claimed, earliest+lasts)", "c.move(since, earliest)"},
	{"an item that others have deleted is passed over", byFaults, "change.go", "case n == nil && sequence >= c.Head:\n\t\treturn nil, queue.ErrDamaged", "case n == nil && sequence >= c.Head:\n\t\treturn &item{ID: []byte{1}}, nil"},
	{"what has ended stays", byFaults, "claim.go", "\t\tc.Pruned++\n", "\t\tbreak\n"},
	{"a shard takes more keys than an answer can name", byFaults, "operations.go", "stat.NumChildren < a.q.maxKeys()", "true"},
	{"a key is forgotten with its sequence", byFaults, "claim.go", "max(floor, c.Sequence)", "floor"},
	{"the time of a run goes back with the clock", byRecord, "change.go", "l.now = max(written, l.Floor)", "l.now = written"},
}

// TestMistakesOfTheStoreAreFound puts one mistake after the other into the store, and expects the
// tests to fail that are to find it.
func TestMistakesOfTheStoreAreFound(t *testing.T) {
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			file := filepath.Join("../../../../decorator/queue/zkqueue", m.file)
			serialtest.Mistake{File: file, Old: m.old, New: m.bug, By: m.by, Flags: []string{"-timeout=4m", "-failfast"}}.MustBeFound(t)
		})
	}
}
