package lockpage

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/watch"
)

// moment is a time as the page shows it: as how long ago it was, or how long it is until then.
// The script keeps it current, so that a live page has no text for it.
type moment struct {
	At     time.Time
	Left   bool
	Frozen bool // it stands still: what it is of was last heard of some time ago
	Text   string
}

// Ms is the time in milliseconds since 1970, as scripts have it.
func (m moment) Ms() int64 { return m.At.UnixMilli() }

// ISO is the time for machines.
func (m moment) ISO() string { return m.At.UTC().Format("2006-01-02T15:04:05.000Z") }

// Clock is the time of day for a reader.
func (m moment) Clock() string { return m.At.Format("15:04:05") }

// builder makes rows of a view.
type builder struct {
	now     time.Time
	live    bool // for a browser that has the script
	mask    *mask
	failing bool                 // the store is
	heard   map[string]time.Time // when processes that have fallen silent were last heard of, by instance
}

func builderOf(p *picture, m *mask) *builder {
	b := &builder{now: p.view.At, mask: m, failing: !p.view.Store.Failing.IsZero(), heard: make(map[string]time.Time)}
	for i := range p.view.Processes {
		if o := &p.view.Processes[i]; !o.Self && b.now.Sub(o.Heard) > quiet {
			b.heard[o.Instance] = o.Heard
		}
	}
	return b
}

// sinceBy is since for something that a process told of: it does not go on when the process has fallen
// silent.
func (b *builder) sinceBy(t time.Time, instance string) *moment {
	m := b.since(t)
	if heard, silent := b.heard[instance]; m != nil && silent {
		m.Frozen, m.Text = true, "≥ "+brief(max(heard.Sub(t), 0))
	}
	return m
}

// patience is how long who waits without an end is not yet said to wait for long.
const patience = 30 * time.Second

// waits are callers who wait, without those who stand by.
type waits struct {
	first             *watch.Waiter // who waits longest; nil if nobody does
	long              bool          // for one of them that is long
	standing, waiting int
}

// note adds a caller.
func (b *builder) note(w *watch.Waiter, to *waits) {
	if w.Standby {
		to.standing++
		return
	}
	to.waiting++
	to.long = to.long || b.long(w)
	if to.first == nil || w.Since.Before(to.first.Since) {
		to.first = w
	}
}

// longest is since when the one waits who waits longest.
func (b *builder) longest(w waits) *moment {
	if w.first == nil {
		return nil
	}
	return b.waits(w.first)
}

// waits is since when a caller waits. It stands still at its policy's Wait: by then the caller has the lock or
// has left, and its process has not told yet.
func (b *builder) waits(w *watch.Waiter) *moment {
	m := b.sinceBy(w.Since, w.Instance)
	if m != nil && !m.Frozen && w.Wait > 0 && w.Wait != core.Forever && b.now.Sub(w.Since) > w.Wait {
		m.Frozen, m.Text = true, brief(w.Wait)
	}
	return m
}

// waitsOf are the callers of a list.
func (b *builder) waitsOf(all []watch.Waiter) (w waits) {
	for i := range all {
		b.note(&all[i], &w)
	}
	return w
}

// long reports whether a caller who does not stand by has waited for half of what its policy lets it wait.
func (b *builder) long(w *watch.Waiter) bool {
	limit := w.Wait / 2
	if w.Wait <= 0 || w.Wait == core.Forever {
		limit = patience
	}
	return b.now.Sub(w.Since) >= limit
}

func (b *builder) since(t time.Time) *moment {
	if t.IsZero() {
		return nil
	}
	m := &moment{At: t}
	if !b.live {
		m.Text = brief(b.now.Sub(t))
	}
	return m
}

func (b *builder) left(t time.Time) *moment {
	m := b.since(t)
	if m == nil {
		return nil
	}
	m.Left = true
	if !b.live {
		m.Text = brief(t.Sub(b.now))
	}
	return m
}

// mask decides what is shown of a key.
type mask struct {
	sealer *sealer
	show   bool
}

// label is what a key is called on the page.
func (m *mask) label(k *watch.Key, code string) string {
	if m.show {
		return printable(k.Key)
	}
	if name := policyOf(k); name != "" {
		return printable(name) + " " + code[:6]
	}
	return "key " + code[:6]
}

func policyOf(k *watch.Key) string {
	for _, p := range k.Policies {
		if p != "" {
			return p
		}
	}
	return ""
}

// figures are the counts that tables show.
type figures struct {
	Taken, HandedOff, Lost, Refused, TimedOut string
	Unavailable                               string
	Bad                                       bool // something was lost
	Rate                                      string
	Spark, Says                               string
}

// settle leaves out holders that a later one has followed: processes report at different times,
// and tokens say who came later. Nobody holds a key beside an exclusive holder. Those of this process
// stay, in front of whoever says that he holds the key too: anybody may have said that in a message.
func settle(k *watch.Key) {
	var last, exclusive int64
	for _, h := range k.Holders {
		last = max(last, h.Token)
		if h.Mode == core.Exclusive {
			exclusive = max(exclusive, h.Token)
		}
	}
	all := len(k.Holders)
	k.Holders = slices.DeleteFunc(k.Holders, func(h watch.Holder) bool {
		return !h.Self && h.Token > 0 && (h.Token < exclusive || h.Mode == core.Exclusive && h.Token < last)
	})
	k.Holding -= all - len(k.Holders)
	own := func(h watch.Holder) bool { return h.Self && h.Mode == core.Exclusive }
	if i := slices.IndexFunc(k.Holders, own); i > 0 {
		h := k.Holders[i]
		k.Holders = slices.Insert(slices.Delete(k.Holders, i, i+1), 0, h)
	}
}

// number is a count; nothing for 0, so that what is there stands out.
func number(n int64) string {
	if n == 0 {
		return ""
	}
	return grouped(n)
}

func figuresOf(c watch.Counts, waits []watch.Bucket) figures {
	f := figures{
		Taken: number(c.Taken), HandedOff: number(c.HandedOff), Lost: number(c.Lost), Refused: number(c.Refused), TimedOut: number(c.TimedOut), Unavailable: number(c.Unavailable),
		Bad: c.Lost > 0, Rate: perSecond(c.Rate), Spark: spark(waits),
	}
	if most, n := longest(waits); n > 0 {
		f.Says = fmt.Sprintf("longest wait %s, of %s", brief(most), plural(n, "caller", "callers"))
	} else {
		f.Says = "nobody waited"
	}
	return f
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(n) + " " + many
}

// keyRow is a line of the table of keys.
type keyRow struct {
	ID, Code, Label, Policy string
	Wait                    *moment // since when the one waits who waits longest
	Long                    bool    // that is long
	Waiting, Here, Standing int
	Unknown                 bool       // whether somebody holds it
	Holder                  *holderRow // the longest
	More                    int        // other holders
	figures
}

// holderRow is one who holds a key.
type holderRow struct {
	ID, Who       string
	Self          bool
	Policy, Mode  string
	Since, Ends   *moment
	Token         string
	Renewals      string
	HandOffs      string
	Trace, Span   string
	Idle, Contend bool
}

func (b *builder) keyRow(k *watch.Key) keyRow {
	code := b.mask.sealer.code(k.Key)
	r := keyRow{ID: "k-" + code, Code: code, Label: b.mask.label(k, code), Unknown: b.failing, figures: figuresOf(k.Counts, k.Waits)}
	if b.mask.show {
		r.Policy = printable(strings.Join(k.Policies, ", "))
	}
	w := b.waitsOf(k.Waiters)
	r.Wait, r.Long, r.Standing, r.Waiting = b.longest(w), w.long, w.standing, max(k.Waiting-w.standing, 0)
	for i := range k.Waiters {
		if w := &k.Waiters[i]; w.Self && !w.Standby {
			r.Here++
		}
	}
	r.Unknown = r.Unknown || r.Waiting > 0 // somebody has it, or is about to, and has not told
	if len(k.Holders) > 0 {
		h := b.holderRow(0, &k.Holders[0])
		r.Holder, r.More = &h, max(k.Holding, len(k.Holders))-1
	}
	return r
}

func (b *builder) holderRow(i int, h *watch.Holder) holderRow {
	r := holderRow{
		ID: fmt.Sprintf("h-%d", i), Who: name(h.Identity), Self: h.Self, Policy: printable(h.Policy), Mode: mode(h.Mode, h.Limit),
		Since: b.sinceBy(h.Since, h.Instance), Ends: b.left(h.Until), Renewals: number(int64(h.Renewals)), HandOffs: number(int64(h.HandOffs)), Idle: h.Idle, Contend: h.Contended,
	}
	if h.Token != 0 {
		r.Token = fmt.Sprint(h.Token)
	}
	if h.TraceID.IsValid() {
		r.Trace, r.Span = h.TraceID.String(), h.SpanID.String()
	}
	return r
}

// name is what a process is called.
func name(identity string) string {
	if identity == "" {
		return "unknown process"
	}
	return printable(identity)
}

func mode(m core.Mode, limit int) string {
	if m == core.Semaphore && limit > 0 {
		return fmt.Sprintf("%s of %d", m, limit)
	}
	return m.String()
}

// waiterRow is one who waits for a key.
type waiterRow struct {
	ID     string
	Place  int
	Who    string
	Self   bool
	Policy string
	Mode   string
	Since  *moment
	Long   bool
	Stands bool
	Trace  string
}

func (b *builder) waiterRow(i int, w *watch.Waiter) waiterRow {
	r := waiterRow{ID: fmt.Sprintf("w-%d", i), Place: i + 1, Who: name(w.Identity), Self: w.Self, Policy: printable(w.Policy), Mode: w.Mode.String(), Since: b.waits(w), Long: !w.Standby && b.long(w), Stands: w.Standby}
	if w.TraceID.IsValid() {
		r.Trace = w.TraceID.String()
	}
	return r
}

// policyRow is a line of the table of policies.
type policyRow struct {
	ID, Name      string
	Waiting, Held int
	More          bool // at least: some callers are counted by key alone
	Wait          *moment
	Long          bool
	Settings      []setting
	figures
}

// setting is a line of what a policy's settings are.
type setting struct {
	Whose string // empty if all processes agree
	Text  string
}

// settingsOf are the settings of a policy, a line for each group of processes that agree.
func settingsOf(all []watch.Settings) (lines []setting) {
	for _, s := range all {
		l := setting{}
		if len(all) > 1 {
			l.Whose = plural(int64(s.Processes), "process", "processes")
			if s.Self {
				l.Whose += ", this one too"
			}
		}
		of := func(name, text string) string {
			if slices.Contains(s.Overridden, name) {
				text += " (override)"
			}
			return text
		}
		field := func(name, value string) string { return of(name, name+" "+value) }
		texts := []string{of("Mode", mode(s.Mode, s.Limit)), field("Wait", bound(s.Wait)), field("TTL", s.TTL.String())}
		if s.MaxHold > 0 {
			texts = append(texts, field("MaxHold", s.MaxHold.String()))
		}
		if s.Strict {
			texts = append(texts, "Strict")
		}
		l.Text = strings.Join(texts, " · ")
		lines = append(lines, l)
	}
	return lines
}

// bound is a policy's Wait for a reader.
func bound(wait time.Duration) string {
	switch wait {
	case 0:
		return "once"
	case core.Forever:
		return "forever"
	}
	return wait.String()
}

// policyRows adds to what is known of policies who holds and waits now.
func (b *builder) policyRows(v *watch.View) []policyRow {
	type now struct {
		waits
		held int
		more bool
	}
	of := map[string]*now{}
	at := func(policy string) *now {
		if of[policy] == nil {
			of[policy] = &now{}
		}
		return of[policy]
	}
	for i := range v.Keys {
		if k := &v.Keys[i]; k.Holding > len(k.Holders) || k.Waiting > len(k.Waiters) {
			for _, name := range k.Policies {
				at(name).more = true
			}
		}
		for _, h := range v.Keys[i].Holders {
			at(h.Policy).held++
		}
		for j := range v.Keys[i].Waiters {
			w := &v.Keys[i].Waiters[j]
			b.note(w, &at(w.Policy).waits)
		}
	}
	rows := make([]policyRow, 0, len(v.Policies))
	for i := range v.Policies {
		p := &v.Policies[i]
		r := policyRow{ID: "y-" + b.mask.sealer.code(p.Name), Name: printable(p.Name), Settings: settingsOf(p.Settings), figures: figuresOf(p.Counts, p.Waits)}
		if n := of[p.Name]; n != nil {
			r.Waiting, r.Held, r.More, r.Wait, r.Long = n.waiting, n.held, n.more, b.longest(n.waits), n.long
		}
		if r.Name == "" {
			r.Name = "without a name"
		}
		rows = append(rows, r)
	}
	slices.SortStableFunc(rows, func(a, b policyRow) int { return earlier(a.Wait, b.Wait) })
	return rows
}

// earlier puts who waits longest in front, and who does not wait behind.
func earlier(a, b *moment) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return a.At.Compare(b.At)
}

// quiet is for how long a process may be silent before that is worth a word.
const quiet = 4 * time.Second

// processRow is a line of the table of processes.
type processRow struct {
	ID, Who       string
	Self          bool
	Gone          *moment
	Closed        bool
	Silent        *moment
	Unknown       *moment // the store fails, so that it cannot be heard of
	Up            *moment
	Version       string
	Held, Waiting int
	Dropped       int
}

func (b *builder) processRows(v *watch.View) []processRow {
	rows := make([]processRow, 0, len(v.Processes))
	for i := range v.Processes {
		p := &v.Processes[i]
		r := processRow{ID: "p-" + b.mask.sealer.code(p.Instance), Who: name(p.Identity), Self: p.Self, Closed: p.Closed, Held: p.Held, Waiting: p.Waiting, Dropped: p.Dropped}
		r.Up, r.Version = b.since(p.Started), printable(p.Version)
		switch silent := !p.Self && b.now.Sub(p.Heard) > quiet; {
		case silent && b.failing && !p.Closed:
			r.Unknown = b.since(p.Heard)
		case !p.Gone.IsZero():
			r.Gone = b.since(p.Gone)
		case silent:
			r.Silent = b.since(p.Heard)
		}
		rows = append(rows, r)
	}
	slices.SortStableFunc(rows, func(a, b processRow) int { return cmp.Compare(rank(a), rank(b)) })
	return rows
}

// rank puts this process in front, and those behind that are gone.
func rank(p processRow) int {
	switch {
	case p.Self:
		return 0
	case p.Gone == nil:
		return 1
	}
	return 2
}

// eventRow is a line of the table of events.
type eventRow struct {
	ID, Kind, Class, Who, Policy string
	At                           *moment
	Token, Waited                string
	Shape                        template.HTML
}

// class is the name of a kind in the style sheet.
func class(kind string) string { return strings.ReplaceAll(kind, " ", "-") }

// eventRows are the events of a key, the latest first.
func (b *builder) eventRows(events []watch.Event) []eventRow {
	rows := make([]eventRow, 0, len(events))
	for i := len(events) - 1; i >= 0; i-- {
		e := &events[i]
		k := e.Kind.String()
		r := eventRow{
			ID:   "e-" + b.mask.sealer.code(fmt.Sprint(e.At.UnixNano(), e.Kind, e.Instance, e.Token)),
			Kind: k, Class: class(k), Shape: shape(class(k)), Who: name(e.Identity), Policy: printable(e.Policy), At: b.since(e.At),
		}
		if e.Token != 0 {
			r.Token = fmt.Sprint(e.Token)
		}
		if e.Waited > 0 {
			r.Waited = brief(e.Waited)
		}
		rows = append(rows, r)
	}
	return rows
}
