package check_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core/lab/faults/check"
	"github.com/lockaround/lockaround/core/lab/faults/history"
)

// story is a history, and the properties that it breaks; none if it is a good one.
type story struct {
	name   string
	breaks string // separated by spaces, sorted
	tell   func(b *book)
}

func judge(t *testing.T, stories []story) {
	t.Helper()
	judgeBy(t, rules, stories)
}

func judgeBy(t *testing.T, rules check.Rules, stories []story) {
	t.Helper()
	for _, s := range stories {
		t.Run(strings.ReplaceAll(s.name, " ", "-"), func(t *testing.T) {
			var b book
			b.held(1, token(1, 0), 1, 2, 0)
			s.tell(&b)
			r := check.All(b.events, rules)
			if got := strings.Join(slices.Sorted(maps.Keys(kinds(r))), " "); got != s.breaks {
				t.Errorf("it breaks %q, want %q:\n%v", got, s.breaks, lines(r))
			}
		})
	}
}

func lines(r check.Report) string {
	var out []string
	for _, v := range r.Violations {
		out = append(out, v.String())
	}
	return strings.Join(out, "\n")
}

func TestOneHolderAtATime(t *testing.T) {
	judge(t, []story{
		{"one after the other", "", func(b *book) {
			b.held(2, token(2, 0), 3, 5, 1)
			b.held(1, token(3, 0), 6, 8, 2)
			b.held(1, token(3, 1), 8.6, 9, 3)
		}},
		{"two at once", "S1 linear", func(b *book) {
			b.held(2, token(2, 0), 3, 5, 1)
			b.held(3, token(3, 0), 4.9, 6, 2)
		}},
		{"one inside another and a third in the first", "S1 linear", func(b *book) {
			b.acquired(2, token(2, 0), 3, 4)
			b.held(3, token(3, 0), 5, 6, 1)
			b.held(1, token(4, 0), 7, 8, 2)
			b.released(2, token(2, 0), 9, 10)
		}},
		{"a caller beside another one of its process", "S1 linear", func(b *book) {
			b.acquired(2, token(2, 0), 3, 4)
			b.add(history.Event{
				Process: 2, Client: 3, Key: key, Op: history.Acquire, Token: token(2, 1), Call: at(4), Return: at(5), Limit: at(6), Deadline: at(400),
			})
			b.released(2, token(2, 0), 9, 10)
		}},
		{"the next one when a deadline has passed", "", func(b *book) {
			b.acquired(2, token(2, 0), 3, 4)
			b.held(1, token(3, 0), 505, 506, 1)
			b.lost(2, token(2, 0), 520, 504)
			b.add(history.Event{Process: 2, Client: 1, Key: key, Op: history.Release, Token: token(2, 0), Call: at(521), Deadline: at(504)})
			b.add(history.Event{Process: 2, Client: 1, Key: key, Op: history.Released, Token: token(2, 0), Call: at(521), Return: at(522), Error: "lock lost while held"})
		}},
		{"the next one before a deadline has passed", "S1 linear", func(b *book) {
			b.acquired(2, token(2, 0), 3, 4)
			b.held(1, token(3, 0), 502, 506, 1)
			b.lost(2, token(2, 0), 520, 504)
		}},
		{"an acquisition that returned when its lease was over", "", func(b *book) {
			b.add(history.Event{
				Process: 2, Client: 1, Key: key, Op: history.Acquire, Token: token(2, 0), Call: at(3), Return: at(1600), Limit: at(1600), Deadline: at(503),
			})
			b.held(1, token(3, 0), 510, 520, 1)
			b.idle(1700)
		}},
		{"the next one when a holder was killed", "", func(b *book) {
			b.acquired(2, token(2, 0), 3, 4)
			b.killed(2, 10)
			b.held(1, token(3, 0), 400, 406, 1)
		}},
		{"the next one before a holder was killed that had renewed", "S1 linear", func(b *book) {
			b.acquired(2, token(2, 0), 3, 4)
			b.driver(history.Renew, 2, "a", 2, 300, 301, 800, "")
			b.held(1, token(3, 0), 600, 606, 1)
			b.killed(2, 700)
			b.held(1, token(4, 0), 800, 806, 2)
		}},
		{"the next one before a holder was killed whose lease was over", "", func(b *book) {
			b.acquired(2, token(2, 0), 3, 4)
			b.driver(history.Renew, 2, "a", 2, 300, 301, 0, "i/o timeout")
			b.held(1, token(3, 0), 600, 606, 1)
			b.killed(2, 700)
			b.held(1, token(4, 0), 800, 806, 2)
		}},
	})
}

func TestLostDataExcusesTwoHoldersUntilTheFirstTTLIsOver(t *testing.T) {
	judge(t, []story{
		{"within the TTL", "", func(b *book) {
			b.acquired(2, token(2, 0), 3, 4)
			b.wiped(10, 11)
			b.held(1, token(3, 0), 20, 22, 1)
			b.released(2, token(2, 0), 400, 401)
			b.held(1, token(4, 0), 420, 422, 2)
		}},
		{"past the TTL", "S1", func(b *book) {
			b.acquired(2, token(2, 0), 3, 4)
			b.wiped(10, 11)
			b.driver(history.Renew, 2, "a", 2, 300, 301, 800, "")
			b.held(1, token(3, 0), 20, 22, 1)
			b.held(1, token(4, 0), 520, 522, 2)
			b.killed(2, 700)
			b.held(1, token(5, 0), 820, 822, 3)
		}},
		{"both after the loss", "S1", func(b *book) {
			b.wiped(3, 4)
			b.acquired(2, token(2, 0), 9, 10)
			b.acquired(1, token(3, 0), 14, 15)
			b.released(2, token(2, 0), 20, 21)
			b.released(1, token(3, 0), 22, 23)
		}},
		{"before the loss", "S1", func(b *book) {
			b.acquired(2, token(2, 0), 9, 10)
			b.acquired(1, token(3, 0), 14, 15)
			b.released(2, token(2, 0), 20, 21)
			b.released(1, token(3, 0), 22, 23)
			b.wiped(24, 25)
			b.held(2, token(4, 0), 30, 31, 1)
		}},
		{"handed on before the loss was known", "", func(b *book) {
			b.held(2, token(2, 0), 3, 5, 1)
			b.wiped(10, 11)
			b.held(1, token(3, 0), 20, 22, 2)
			b.acquired(2, token(2, 1), 24, 25)
			b.guarded(history.Read, 2, token(2, 1), 26, 0, history.Stale)
			b.released(2, token(2, 1), 27, 28)
			b.held(1, token(4, 0), 30, 31, 3)
		}},
		{"handed on before the loss was known, and told late", "", func(b *book) {
			b.held(2, token(2, 0), 3, 5, 1)
			b.wiped(10, 11)
			b.held(1, token(3, 0), 20, 22, 2)
			b.add(history.Event{
				Process: 2, Client: 1, Key: key, Op: history.Acquire, Token: token(2, 1), Call: at(24), Return: at(700), Limit: at(700), Deadline: at(505),
			})
			b.released(2, token(2, 1), 701, 702)
		}},
		{"handed on long after the loss", "S2", func(b *book) {
			b.held(2, token(2, 0), 3, 5, 1)
			b.wiped(10, 11)
			b.held(1, token(3, 0), 20, 22, 2)
			b.acquired(2, token(2, 1), 599, 600)
			b.released(2, token(2, 1), 601, 602)
		}},
	})
}

func TestTokensRise(t *testing.T) {
	judge(t, []story{
		{"the same one twice", "S2 linear", func(b *book) {
			b.held(2, token(2, 0), 3, 5, 1)
			b.held(1, token(2, 0), 6, 8, 2)
		}},
		{"a smaller one", "S2 linear", func(b *book) {
			b.held(2, token(3, 0), 3, 5, 1)
			b.acquired(1, token(2, 0), 6, 7)
			b.released(1, token(2, 0), 8, 9)
		}},
		{"the same one, asked for before", "S2 linear", func(b *book) {
			b.acquired(2, token(2, 0), 3, 4)
			b.acquired(1, token(2, 0), 3, 6)
			b.released(2, token(2, 0), 4.5, 5)
			b.released(1, token(2, 0), 7, 8)
		}},
		{"a smaller one that was over when it was told", "", func(b *book) {
			b.add(history.Event{
				Process: 2, Client: 1, Key: key, Op: history.Acquire, Token: token(2, 0), Call: at(3), Return: at(700), Limit: at(700), Deadline: at(503),
			})
			b.held(1, token(3, 0), 510, 520, 1)
			b.idle(710)
		}},
		{"a smaller one, two holders later", "S2 linear", func(b *book) {
			b.held(2, token(5, 0), 3, 5, 1)
			b.held(1, token(6, 0), 6, 8, 2)
			b.acquired(2, token(4, 0), 9, 10)
			b.released(2, token(4, 0), 11, 12)
		}},
	})
}

func TestGuardKeepsItsOrderAndItsCount(t *testing.T) {
	judge(t, []story{
		{"a late write is refused", "", func(b *book) {
			b.held(2, token(2, 0), 3, 5, 1)
			b.guarded(history.Write, 1, token(1, 0), 6, 2, history.Stale)
		}},
		{"a late write is let in", "S3 linear", func(b *book) {
			b.held(2, token(2, 0), 3, 5, 1)
			b.guarded(history.Write, 1, token(1, 0), 6, 2, "")
		}},
		{"a late read is let in", "S3 linear", func(b *book) {
			b.held(2, token(2, 0), 3, 5, 1)
			b.guarded(history.Read, 1, token(1, 0), 6, 2, "")
		}},
		{"the holder is refused", "S3 linear", func(b *book) {
			b.acquired(2, token(2, 0), 3, 4)
			b.guarded(history.Read, 2, token(2, 0), 5, 0, history.Stale)
			b.released(2, token(2, 0), 6, 7)
		}},
		{"an increment is lost", "S3", func(b *book) {
			b.held(2, token(2, 0), 3, 5, 1)
			b.guarded(history.Write, 2, token(2, 0), 5.5, 2, "")
		}},
		{"what was read is not what was written", "S3 linear", func(b *book) {
			b.acquired(2, token(2, 0), 3, 4)
			b.guarded(history.Read, 2, token(2, 0), 5, 7, "")
			b.released(2, token(2, 0), 6, 7)
		}},
		{"the guard fails", "S3 linear", func(b *book) {
			b.acquired(2, token(2, 0), 3, 4)
			b.guarded(history.Read, 2, token(2, 0), 5, 7, "out of order")
			b.released(2, token(2, 0), 6, 7)
		}},
	})
}

func TestReleasedLeaseIsLeftAlone(t *testing.T) {
	judge(t, []story{
		{"renewed before", "", func(b *book) {
			b.driver(history.Renew, 1, "a", 1, 3, 4, 500, "")
			b.driver(history.End, 1, "a", 1, 5, 6, 0, "")
			b.driver(history.Renew, 1, "b", 2, 200, 201, 700, "")
		}},
		{"a renewal that was on its way", "", func(b *book) {
			b.driver(history.End, 1, "a", 1, 5, 6, 0, "")
			b.driver(history.Renew, 1, "a", 1, 8, 9, 0, history.NotHeld)
		}},
		{"renewed after, by what was under way when the machine was busy", "", func(b *book) {
			b.driver(history.End, 1, "a", 1, 5, 6, 0, "")
			b.driver(history.Renew, 1, "a", 1, 150, 151, 0, history.NotHeld)
		}},
		{"renewed after", "L4", func(b *book) {
			b.driver(history.End, 1, "a", 1, 5, 6, 0, "")
			b.driver(history.Renew, 1, "a", 1, 160, 161, 0, history.NotHeld)
		}},
		{"renewed after a release that found it gone", "L4", func(b *book) {
			b.driver(history.End, 1, "a", 1, 5, 6, 0, history.NotHeld)
			b.driver(history.Renew, 1, "a", 1, 160, 161, 0, history.NotHeld)
		}},
		{"renewed after a release that was not answered", "", func(b *book) {
			b.driver(history.End, 1, "a", 1, 5, 6, 0, "i/o timeout")
			b.driver(history.Renew, 1, "a", 1, 100, 101, 500, "")
		}},
	})
}

// TestMuchHistoryIsCutIntoPieces has a bad one at its end, which shows that pieces begin
// in the state that the one before left.
func TestMuchHistoryIsCutIntoPieces(t *testing.T) {
	for _, bad := range []bool{false, true} {
		var b book
		const sections = 1000
		for i := range int64(sections) {
			from := float64(i) * 4
			b.held(int(1+i%5), token(i+1, 0), from+1, from+2, i)
			// Somebody always waits: no cut is without an acquisition under way.
			b.waited(7, from, from+5)
		}
		if bad {
			b.guarded(history.Read, 1, token(sections, 0), 4*sections+1, 1, "")
		}
		r := check.All(b.events, rules)
		if r.Figures.Pieces < 5 || r.Figures.Linear < 4*sections {
			t.Errorf("there are %d pieces of %d operations together; want 5 or more of %d", r.Figures.Pieces, r.Figures.Linear, 4*sections)
		}
		if got := kinds(r)["linear"]; got != map[bool]int{true: 1}[bad] {
			t.Errorf("bad: %v; %d pieces are found bad:\n%s", bad, got, lines(r))
		}
	}
}

func TestPieceThatIsNotDecidedInTimeFails(t *testing.T) {
	var b book
	for i := range 40 { // all at once, in an order that cannot be
		b.add(history.Event{
			Process: i + 1, Client: 1, Key: key, Op: history.Write, Token: 1024, Value: int64(i), Call: at(1), Return: at(2),
		})
		b.add(history.Event{
			Process: i + 1, Client: 1, Key: key, Op: history.Read, Token: 1024, Value: int64(i + 100), Call: at(1), Return: at(2),
		})
	}
	b.held(1, token(2, 0), 4, 5, 39)
	r := rules
	r.Search = 1
	report := check.All(b.events, r)
	if !strings.Contains(fmt.Sprint(report.Violations), "was not found out") {
		t.Errorf("it says:\n%s", lines(report))
	}
}

func TestHistoryThatEndsWhatItDidNotBeginIsRefused(t *testing.T) {
	judge(t, []story{
		{"a release of nothing", "history", func(b *book) { b.released(3, token(4, 0), 5, 6) }},
		{"a release of another lease", "history", func(b *book) { b.released(1, token(4, 0), 5, 6) }},
	})
}
