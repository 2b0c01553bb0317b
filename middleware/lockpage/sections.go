package lockpage

import (
	"bytes"
	"hash/maphash"
	"html/template"
	"strconv"
	"strings"

	"github.com/lockaround/lockaround/core/watch"
)

// section is a part of the document that is kept current: an element with children that
// each have an ID. A browser is sent the children that have changed, and their order.
type section struct {
	Name  string
	Parts []part
}

type part struct {
	ID   string
	HTML template.HTML
}

// drawing makes sections with the templates.
type drawing struct {
	all []section
	err error
}

// add adds a section whose parts are the template's of each row.
func add[T any](d *drawing, name string, rows []T, id func(*T) string) {
	s := section{Name: name, Parts: make([]part, 0, len(rows))}
	seen := make(map[string]int, len(rows))
	var out bytes.Buffer
	for i := range rows {
		out.Reset()
		if err := pages.ExecuteTemplate(&out, name, rows[i]); err != nil {
			d.err = err
			return
		}
		key := id(&rows[i])
		if seen[key]++; seen[key] > 1 {
			continue // two of one name cannot be told apart by the browser; which no honest process causes
		}
		s.Parts = append(s.Parts, part{key, template.HTML(out.String())}) // it is the template's
	}
	d.all = append(d.all, s)
}

// total is a figure at the head of the page.
type total struct {
	ID, Name, Value, Note string
	Since                 *moment
	Class                 string
}

// longestOf is the figure of the longest wait.
func (b *builder) longestOf(id string, w waits) total {
	t := total{ID: id, Name: "longest wait now", Value: "–", Since: b.longest(w)}
	if w.long {
		t.Class = "wait"
	}
	return t
}

func totalsOf(b *builder, v *watch.View) []total {
	var c watch.Counts
	for _, p := range v.Policies {
		c.Taken += p.Counts.Taken
		c.HandedOff += p.Counts.HandedOff
		c.Lost += p.Counts.Lost
		c.Refused += p.Counts.Refused
		c.TimedOut += p.Counts.TimedOut
		c.Unavailable += p.Counts.Unavailable
		c.Rate += p.Counts.Rate
	}
	held, waiting, gone := 0, 0, 0
	for _, p := range v.Processes {
		if p.Gone.IsZero() {
			held, waiting = held+p.Held, waiting+p.Waiting
		} else {
			gone++
		}
	}
	var w waits
	for i := range v.Keys {
		for j := range v.Keys[i].Waiters {
			b.note(&v.Keys[i].Waiters[j], &w)
		}
	}
	t := []total{
		{ID: "t-processes", Name: "processes", Value: strconv.Itoa(len(v.Processes) - gone)},
		{ID: "t-held", Name: "held", Value: grouped(int64(held))},
		{ID: "t-waiting", Name: "waiting", Value: grouped(int64(max(waiting-w.standing, 0)))},
		b.longestOf("t-wait", w),
		{ID: "t-rate", Name: "taken", Value: perSecond(c.Rate)},
		{ID: "t-handoffs", Name: "hand-offs", Value: grouped(c.HandedOff)},
		{ID: "t-lost", Name: "lost", Value: grouped(c.Lost)},
		{ID: "t-refused", Name: "refused", Value: grouped(c.Refused)},
		{ID: "t-timedout", Name: "timed out", Value: grouped(c.TimedOut)},
		{ID: "t-unavailable", Name: "unavailable", Value: grouped(c.Unavailable)},
	}
	if c.Unavailable > 0 {
		t[9].Class = "bad"
	}
	if gone > 0 {
		t[0].Note, t[0].Class = strconv.Itoa(gone)+" gone", "bad"
	}
	if b.failing {
		t[0].Note, t[0].Class = "others unknown", "bad"
		for i := range t[1:3] {
			t[1+i].Note = "as last heard"
		}
	}
	if w.standing > 0 {
		t = append(t, total{ID: "t-standing", Name: "standing by", Value: grouped(int64(w.standing))})
	}
	if t[4].Value == "" {
		t[4].Value = "0/s"
	}
	if c.Lost > 0 {
		t[6].Class = "bad"
	}
	return t
}

// overview are the sections of the first page.
func (b *builder) overview(p *picture) *drawing {
	d := &drawing{}
	keys := make([]keyRow, len(p.view.Keys))
	for i := range p.view.Keys {
		keys[i] = b.keyRow(&p.view.Keys[i])
	}
	add(d, "total", totalsOf(b, &p.view), func(t *total) string { return t.ID })
	add(d, "notice", b.noticesOf(&p.view), func(n *notice) string { return n.ID })
	add(d, "key", keys, func(r *keyRow) string { return r.ID })
	add(d, "policy", b.policyRows(&p.view), func(r *policyRow) string { return r.ID })
	add(d, "process", b.processRows(&p.view), func(r *processRow) string { return r.ID })
	add(d, "panel", b.panels(p.panels), func(v *panelView) string { return v.ID })
	return d
}

// notice is something that the page says of itself.
type notice struct {
	ID, Text string
	Since    *moment // of an alarm: since when
	Fault    string  // and what the store came to last
}

// alarm says that the store fails.
func (b *builder) alarm(s *watch.Store) []notice {
	if s.Failing.IsZero() {
		return nil
	}
	n := notice{ID: "n-alarm", Text: "The store does not answer. Nobody acquires a lock, and leases end at their deadlines. What this page says of keys and of other processes is as it was last heard.", Since: b.since(s.Failing), Fault: printable(s.Fault)}
	if s.Refuses {
		n.Text = "The store answers that it will not do what locks need. What this page says of keys and of other processes is as it was last heard."
	}
	return []notice{n}
}

func (b *builder) noticesOf(v *watch.View) (all []notice) {
	all = b.alarm(&v.Store)
	if v.Alone != "" && !b.failing {
		all = append(all, notice{ID: "n-alone", Text: printable(v.Alone)})
	}
	if v.Dropped > 0 {
		all = append(all, notice{ID: "n-dropped", Text: plural(int64(v.Dropped), "more key is in use; it waits", "more keys are in use; they wait") + " less than those shown."})
	}
	return all
}

// closely are the sections of the page of a key.
func (b *builder) closely(k *watch.Key) *drawing {
	d := &drawing{}
	var holders []holderRow
	for i := range k.Holders {
		holders = append(holders, b.holderRow(i, &k.Holders[i]))
	}
	var waiters []waiterRow
	for i := range k.Waiters {
		waiters = append(waiters, b.waiterRow(i, &k.Waiters[i]))
	}
	var notices []notice
	if k.Store == nil {
		notices = append(notices, notice{ID: "n-store", Text: "The store does not answer. This is what the processes tell, and it may be old."})
	}
	add(d, "fact", b.factsOf(k), func(t *total) string { return t.ID })
	add(d, "notice", notices, func(n *notice) string { return n.ID })
	add(d, "holder", holders, func(r *holderRow) string { return r.ID })
	add(d, "waiter", waiters, func(r *waiterRow) string { return r.ID })
	var lines []*timeline
	if l := drawn(k); l != nil {
		lines = append(lines, l)
	}
	add(d, "timeline", lines, func(**timeline) string { return "timeline" })
	add(d, "event", b.eventRows(k.Events), func(r *eventRow) string { return r.ID })
	return d
}

func (b *builder) factsOf(k *watch.Key) []total {
	f := figuresOf(k.Counts, k.Waits)
	zero := func(s string) string {
		if s == "" {
			return "0"
		}
		return s
	}
	t := []total{
		{ID: "f-waiting", Name: "callers waiting", Value: strconv.Itoa(k.Waiting)},
		{ID: "f-store", Name: "places in the store’s queue", Value: "–"},
		b.longestOf("f-wait", b.waitsOf(k.Waiters)),
		{ID: "f-taken", Name: "taken", Value: zero(f.Taken), Note: f.Rate},
		{ID: "f-handoffs", Name: "hand-offs", Value: zero(f.HandedOff)},
		{ID: "f-lost", Name: "lost", Value: zero(f.Lost)},
		{ID: "f-refused", Name: "refused", Value: zero(f.Refused)},
		{ID: "f-timedout", Name: "timed out", Value: zero(f.TimedOut)},
		{ID: "f-unavailable", Name: "unavailable", Value: zero(f.Unavailable)},
	}
	if k.Store != nil {
		t[1].Value = strconv.Itoa(k.Store.Waiting)
	}
	if f.Bad {
		t[5].Class = "bad"
	}
	return t
}

// sent is what a browser has got, so that it is sent what has changed only.
type sent struct {
	seed  maphash.Seed
	parts map[string]map[string]uint64 // by section, by ID: of the HTML
	order map[string]uint64            // by section
}

func newSent() *sent {
	return &sent{seed: maphash.MakeSeed(), parts: map[string]map[string]uint64{}, order: map[string]uint64{}}
}

// change is what has changed in a section.
type change struct {
	Name  string   `json:"s"`
	Order []string `json:"o,omitempty"` // all IDs, if their order has changed
	Empty bool     `json:"e,omitempty"` // there are none any more
	Parts string   `json:"p,omitempty"` // HTML of the elements that have changed, one after the other
}

// since returns what has changed since the last call.
func (s *sent) since(all []section) (out []change) {
	for _, sec := range all {
		c := change{Name: sec.Name}
		var parts strings.Builder
		had, has := s.parts[sec.Name], make(map[string]uint64, len(sec.Parts))
		var order maphash.Hash
		order.SetSeed(s.seed)
		_, _ = order.WriteString("-")
		ids := make([]string, len(sec.Parts))
		for i, p := range sec.Parts {
			ids[i] = p.ID
			_, _ = order.WriteString(p.ID + " ")
			has[p.ID] = maphash.String(s.seed, string(p.HTML))
			if had[p.ID] != has[p.ID] {
				parts.WriteString(string(p.HTML))
			}
		}
		sum := order.Sum64()
		if sum != s.order[sec.Name] {
			c.Order, c.Empty = ids, len(ids) == 0
		}
		s.parts[sec.Name], s.order[sec.Name], c.Parts = has, sum, parts.String()
		if c.Order != nil || c.Empty || c.Parts != "" {
			out = append(out, c)
		}
	}
	return out
}
