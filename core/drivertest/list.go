package drivertest

import (
	"slices"
	"strings"

	"github.com/lockaround/lockaround/core/driver"
)

var listChecks = []check{
	{"ListNamesEveryTakenKey", needs(listing), listNamesEveryTakenKey},
	{"ListKeepsToItsPrefix", needs(listing), listKeepsToItsPrefix},
	{"ListBearsKeysThatComeAndGo", needs(listing), listBearsKeysThatComeAndGo},
}

// listing is the need of sessions that are a driver.Lister.
var listing = need{"Session that is a driver.Lister", false, func(f *fixture) bool { return lists(f.h.Driver) }}

func lists(d driver.Driver) bool {
	_, ok := sessionOf(d).(driver.Lister)
	return ok
}

// maxPages is more than any store needs for a check's keys and those of others beside it.
const maxPages = 100_000

// list goes through the pages of a prefix, and calls between after each page but the last.
func (p *process) list(prefix string, limit int, between func()) map[string]int {
	p.f.t.Helper()
	named := make(map[string]int)
	after := ""
	for range maxPages {
		page := p.page(prefix, after, limit)
		for _, key := range page.Keys {
			named[key]++
		}
		if page.Next == "" {
			return named
		}
		after = page.Next
		between()
	}
	p.f.t.Fatalf("a list with a limit of %d has no end", limit)
	return nil
}

func (p *process) page(prefix, after string, limit int) driver.Page {
	p.f.t.Helper()
	type answer struct {
		page driver.Page
		err  error
	}
	ctx := p.f.prompt()
	a := within(p.f, promptness+grace+Slack, "List", func() answer {
		page, err := p.s.(driver.Lister).List(ctx, prefix, after, limit)
		return answer{page, err}
	})
	if a.err != nil {
		p.f.t.Fatalf("list: %v", a.err)
	}
	return a.page
}

func none() {}

// takeHostile takes hostile keys that begin with the check's.
func (f *fixture) takeHostile(p *process) (held []*lease) {
	f.t.Helper()
	for i, part := range hostile() {
		l, err := p.try(f.key+part, max(f.long(), hostileTTL))
		if err != nil {
			f.t.Fatalf("key %d, %.40q…: %v", i, part, err)
		}
		held = append(held, l)
	}
	return held
}

func listNamesEveryTakenKey(f *fixture) {
	p, q := f.process(), f.process()
	held := f.takeHostile(p)
	w := q.queue(held[0].Key)
	for _, limit := range []int{1000, 7} {
		named := q.list(f.key, limit, none)
		for _, l := range held {
			if named[l.Key] == 0 {
				f.t.Errorf("with a limit of %d, the key %.60q, which is held, is in no page", limit, l.Key)
			}
			delete(named, l.Key)
		}
		for key := range named {
			f.t.Errorf("with a limit of %d, a page has the key %.60q, which nobody has used", limit, key)
		}
	}
	w.cancel()
	for _, l := range held {
		l.holds()
		l.drop()
	}
}

func listKeepsToItsPrefix(f *fixture) {
	p := f.process()
	held := f.takeHostile(p)
	for _, part := range []string{"a", "a:", "{", "{a}", "%", "\\", "*", "?", "[a]", "\xff", "\x00", "..", "K", "no such key"} {
		prefix := f.key + part
		named := p.list(prefix, 100, none)
		for key := range named {
			if !strings.HasPrefix(key, prefix) {
				f.t.Errorf("a list of what begins with %q has %.60q", prefix, key)
			}
		}
		for _, l := range held {
			if strings.HasPrefix(l.Key, prefix) && named[l.Key] == 0 {
				f.t.Errorf("a list of what begins with %q lacks %.60q", prefix, l.Key)
			}
		}
	}
	for _, l := range held {
		l.drop()
	}
}

// listBearsKeysThatComeAndGo gives back keys that are listed already, and takes others, while
// the list goes on.
func listBearsKeysThatComeAndGo(f *fixture) {
	p := f.process()
	var stay, come, later []*lease
	for i := range 40 {
		l := p.take(f.key+":"+strings.Repeat("a", i), f.long())
		if i%4 == 0 {
			stay = append(stay, l)
		} else {
			come = append(come, l)
		}
	}
	named := p.list(f.key, 3, func() {
		for range min(3, len(come)) {
			come[0].drop()
			come = slices.Delete(come, 0, 1)
			later = append(later, p.take(f.key+strings.Repeat("z", 1+len(come)), f.long()))
		}
	})
	for _, l := range stay {
		if named[l.Key] == 0 {
			f.t.Errorf("the key %q, which was held all the time, is in no page", l.Key)
		}
		l.drop()
	}
	for _, l := range slices.Concat(come, later) {
		l.drop()
	}
}
