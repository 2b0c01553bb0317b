package generate

import (
	"fmt"
	"go/types"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core"
)

// wrapper writes a type that has the owner's methods, some of them with a lock.
func (w *writer) wrapper(p *part) {
	declared, used := w.declared(p.params)
	named := p.owner.Type().(*types.Named)
	isInterface := types.IsInterface(named)
	owner, star := p.owner.Name(), "*"
	if isInterface {
		star = ""
	}

	// The embedded alias passes on what has no lock, and keeps the name of the field
	// out of reach of other packages. Nothing in the type may hide a method.
	fields := names{p.next: true}
	for name := range methodsOf(named) {
		fields[name] = true
	}
	var methods []string
	for _, l := range p.locks {
		l.guardField = fields.fresh(unexported(l.name.Name) + "Guard")
		methods = append(methods, l.name.Name)
	}

	w.comment("%s has the methods of %s, with the locks of their //lock:with directives around %s. "+
		"All other methods are those of the %s as they are, and its calls to methods of its own have no locks.",
		p.made, owner, enumerate(methods), owner)
	w.printf("type %s%s struct {\n\t%s%s%s\n", p.made, declared, star, p.next, used)
	for _, l := range p.locks {
		if l.once != "" {
			w.printf("\t%s *{idempotent}.Guard[%s%s]\n", l.guardField, l.keyType, used)
			continue
		}
		w.printf("\t%s *{core}.Guard[%s%s]\n", l.guardField, l.keyType, used)
	}
	w.printf("}\n\ntype %s%s = %s%s\n", p.next, declared, owner, used)

	scope := w.mentioned(p).with(owner, p.made, p.next)
	locks, records := scope.fresh("locks"), w.records(p, scope)
	next, self, err := scope.fresh("next"), scope.fresh("w"), scope.fresh("err")
	w.comment("%s puts locks around %s%s. The error is a [%s.ErrPolicy]: %s%s or %[2]s is nil, or a directive asks for what %[7]s not offer.",
		p.maker, next, records.purpose, w.core(), locks, records.listed, records.offer(locks))
	w.printf("func %s%s(%s *{core}.Engine%s, %s %s%s%s) (*%s%s, error) {\n", p.maker, declared, locks, records.param, next, star, owner, used, p.made, used)
	w.printf("\tif %s == nil {\n\t\treturn nil, &{core}.Error{Op: \"compile\", Kind: {core}.ErrPolicy, Detail: %q}\n\t}\n",
		next, p.maker+" got a nil "+star+owner+"; pass the one to put locks around")
	w.printf("\t%s := &%s%s{%s: %s}\n", self, p.made, used, p.next, next)
	if isInterface {
		w.printf("\tvar _ %s%s = %s // it has all methods, with the right types\n", p.next, used, self)
	}
	w.printf("\tvar %s error\n", err)
	for _, l := range p.locks {
		w.printf("\t%s.%s, %s = ", self, l.guardField, err)
		w.guard(l, used, locks, records.name)
		w.printf("\n\tif %s != nil {\n\t\treturn nil, %[1]s\n\t}\n", err)
	}
	w.printf("\treturn %s, nil\n}\n", self)

	for _, l := range p.locks {
		taken := names{l.keyType: true, "nil": true}
		for t := range p.params.TypeParams() {
			taken[t.Obj().Name()] = true
		}
		if l.when != nil && l.when.Signature().Recv() == nil {
			taken[l.when.Name()] = true
		}
		w.mentionedOnce(l, taken)
		c := w.call(l.sig, taken)
		self, section := taken.fresh("w"), taken.fresh("section")
		call := self + "." + p.next + "." + l.name.Name
		if l.once != "" {
			w.comment("%s calls that of the %s once for each key of %s, while it holds the lock of that: a repeated call gets the results of the first.", l.name.Name, owner, l.keys())
			w.printf("func (%s *%s%s) %s(%s) (%s) {\n", self, p.made, used, l.name.Name, c.params, c.results)
			w.once(p, l, c, self+"."+l.guardField, call, taken)
			w.printf("}\n")
			continue
		}
		w.comment("%s calls that of the %s while it holds the lock of %s%s.", l.name.Name, owner, l.keys(), l.unless())
		w.printf("func (%s *%s%s) %s(%s) (%s) {\n", self, p.made, used, l.name.Name, c.params, c.results)
		w.condition(l, c, self+"."+p.next+".", call)
		w.section(p, l, c, self+"."+l.guardField, section)
		w.printf("\treturn %s(%s.Context()%s)\n}\n", call, section, c.rest)
	}
}

// function writes a function that returns another one with a lock.
func (w *writer) function(p *part) {
	l := p.locks[0]
	declared, used := w.declared(p.params)
	scope := w.mentioned(p).with(l.name.Name)
	taken := names{l.keyType: true, l.name.Name: true, "nil": true}
	if l.when != nil {
		scope[l.when.Name()], taken[l.when.Name()] = true, true
	}
	for _, tuple := range []*types.Tuple{l.sig.Params(), l.sig.Results()} {
		for v := range tuple.Variables() {
			scope.words(w.typ(v.Type())) // the function that is returned has them within
		}
	}
	locks, records := scope.fresh("locks"), w.records(p, scope)
	guard, err := scope.fresh("guard"), scope.fresh("err")
	outer := w.call(l.sig, names{})
	taken[guard] = true
	for t := range p.params.TypeParams() {
		taken[t.Obj().Name()] = true
	}
	w.mentionedOnce(l, taken)
	c := w.call(l.sig, taken)
	section := taken.fresh("section")
	if l.once != "" {
		w.comment("%s returns %s so that it runs once for each key of %s, with the lock of that around it: a repeated call gets the results of the first. "+
			"The error is a [%s.ErrPolicy]: %s or %s is nil, or the directive asks for what %s not offer.",
			p.maker, l.name.Name, l.keys(), w.core(), locks, records.name, records.offer(locks))
	} else {
		w.comment("%s returns %s with the lock of %s around it%s. The error is a [%s.ErrPolicy]: %s is nil, or the directive asks for what its driver does not offer.",
			p.maker, l.name.Name, l.keys(), l.unless(), w.core(), locks)
	}
	w.printf("func %s%s(%s *{core}.Engine%s) (func(%s) (%s), error) {\n", p.maker, declared, locks, records.param, outer.params, outer.results)
	w.printf("\t%s, %s := ", guard, err)
	w.guard(l, used, locks, records.name)
	w.printf("\n\tif %s != nil {\n\t\treturn nil, %[1]s\n\t}\n", err)
	w.printf("\treturn func(%s) (%s) {\n", c.params, c.results)
	if l.once != "" {
		w.once(p, l, c, guard, l.name.Name+used, taken)
		w.printf("}, nil\n}\n")
		return
	}
	w.condition(l, c, "", l.name.Name+used)
	w.section(p, l, c, guard, section)
	w.printf("\treturn %s%s(%s.Context()%s)\n}, nil\n}\n", l.name.Name, used, section, c.rest)
}

// condition writes how a call that needs no lock goes without one. A method of the condition is
// that of receiver.
func (w *writer) condition(l *lock, c call, receiver, call string) {
	if l.when == nil {
		return
	}
	if l.when.Signature().Recv() == nil {
		receiver = ""
	}
	w.printf("\tif !%s%s(%s) {\n\t\treturn %s(%s%s)\n\t}\n", receiver, l.when.Name(), strings.TrimPrefix(c.rest, ", "), call, c.ctx, c.rest)
}

// unless says for a comment when there is no lock.
func (l *lock) unless() string {
	if l.when == nil {
		return ""
	}
	return ", or without a lock where " + l.when.Name() + " returns false"
}

// section writes how a call comes into its critical section.
func (w *writer) section(p *part, l *lock, c call, guard, section string) {
	w.printf("\t%s, %s := %s.Enter(%s, %s)\n", section, c.err, guard, c.ctx, w.keyOf(p, l, c))
	w.printf("\tif %s != nil {\n\t\treturn %s\n\t}\n\tdefer %s.Leave(&%[1]s)\n", c.err, c.zero, section)
}

// keyOf is the expression of what a call hands to its guard.
func (w *writer) keyOf(p *part, l *lock, c call) string {
	_, used := w.declared(p.params)
	var held []string
	for _, h := range w.held(l) {
		for i := range l.sig.Params().Len() {
			if l.sig.Params().At(i) == h.param {
				held = append(held, h.field+": "+h.from(c.named[i]))
			}
		}
	}
	return l.keyType + used + "{" + strings.Join(held, ", ") + "}"
}

// guard writes the expression that compiles a policy.
func (w *writer) guard(l *lock, used, locks, records string) {
	p := l.policy
	if l.once == "" {
		w.printf("{core}.NewGuard(%s, {core}.Policy{\n", locks)
	} else {
		w.printf("{idempotent}.NewGuard(%s, {core}.Policy{\n", locks)
	}
	field := func(name, value string) { w.printf("%s: %s,\n", name, value) }
	if p.Key != "" {
		field("Key", fmt.Sprintf("%q", p.Key))
	} else {
		var keys []string
		for _, k := range p.Keys {
			keys = append(keys, fmt.Sprintf("%q", k))
		}
		field("Keys", "[]string{"+strings.Join(keys, ", ")+"}")
	}
	if p.AllowEmpty {
		field("AllowEmpty", "true")
	}
	if p.Name != "" {
		field("Name", fmt.Sprintf("%q", p.Name))
	}
	if name := map[core.Mode]string{core.Shared: ".Shared", core.Semaphore: ".Semaphore"}[p.Mode]; name != "" {
		field("Mode", w.core()+name)
	}
	if p.Limit != 0 {
		field("Limit", fmt.Sprint(p.Limit))
	}
	if p.MaxWaiting != 0 {
		field("MaxWaiting", fmt.Sprint(p.MaxWaiting))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"Wait", p.Wait}, {"TTL", p.TTL}, {"MaxHold", p.MaxHold}, {"MinHold", p.MinHold}, {"Linger", p.Linger}} {
		if d.value != 0 {
			field(d.name, w.duration(d.value))
		}
	}
	if p.NoRenew {
		field("NoRenew", "true")
	}
	if p.Reentrant {
		field("Reentrant", "true")
	}
	if name := map[core.Strength]string{core.ClockTokens: ".ClockTokens", core.DurableTokens: ".DurableTokens"}[p.Tokens]; name != "" {
		field("Tokens", w.core()+name)
	}
	if p.Fairness == core.Strict {
		field("Fairness", w.core()+".Strict")
	}
	if p.Release == core.Sent {
		field("Release", w.core()+".Sent")
	}
	w.printf("}, ")
	if l.once != "" {
		w.printf("%s, {idempotent}.Policy{Died: {idempotent}.%s", records, exported(l.once))
		if l.keep != 0 {
			w.printf(", Keep: %s", w.duration(l.keep))
		}
		w.printf("}, ")
	}
	w.printf("%s%s{}.value)", l.keyType, used)
}

// duration is how a person writes a duration in Go.
func (w *writer) duration(d time.Duration) string {
	switch d {
	case core.Forever:
		return w.core() + ".Forever"
	case core.TryOnce:
		return w.core() + ".TryOnce"
	}
	unit, name := time.Nanosecond, "Nanosecond"
	for _, larger := range []struct {
		unit time.Duration
		name string
	}{{time.Microsecond, "Microsecond"}, {time.Millisecond, "Millisecond"}, {time.Second, "Second"}, {time.Minute, "Minute"}, {time.Hour, "Hour"}} {
		if d%larger.unit == 0 {
			unit, name = larger.unit, larger.name
		}
	}
	name = w.use("time", "time") + "." + name
	if d == unit {
		return name
	}
	return fmt.Sprintf("%d * %s", d/unit, name)
}

// keys are the templates for a comment.
func (l *lock) keys() string {
	var keys []string
	for _, m := range l.marks {
		keys = append(keys, fmt.Sprintf("%q", m.Key))
	}
	return enumerate(keys)
}

func enumerate(all []string) string {
	if n := len(all) - 1; n > 0 {
		return strings.Join(all[:n], ", ") + " and " + all[n]
	}
	return all[0]
}

// records are how a constructor gets the store of the records of calls that run once, if there are some.
type records struct {
	name, param     string
	purpose, listed string // for its comment
}

func (w *writer) records(p *part, scope names) (r records) {
	if !p.once() {
		return r
	}
	r.name = scope.fresh("records")
	r.param = fmt.Sprintf(", %s %s.Store", r.name, w.use(oncePath, "idempotent"))
	r.purpose = ", and keeps in " + r.name + " which calls have run"
	r.listed = ", " + r.name
	return r
}

// offer is for a comment who does not offer what a directive asks for.
func (r records) offer(locks string) string {
	if r.name == "" {
		return "the driver of " + locks + " does"
	}
	return "the driver of " + locks + " or " + r.name + " does"
}

// mentionedOnce takes the names that a call which runs once has within, if it is one.
func (w *writer) mentionedOnce(l *lock, taken names) {
	if l.once == "" {
		return
	}
	for _, name := range []string{"any", "error", w.use(oncePath, "idempotent"), w.use("context", "context")} {
		taken[name] = true
	}
	for v := range l.sig.Results().Variables() {
		taken.words(w.typ(v.Type()))
	}
}

// once writes how a call runs once.
func (w *writer) once(p *part, l *lock, c call, guard, next string, taken names) {
	done := taken.fresh("done")
	fields, results := "struct{", []string{}
	for i, typ := range c.types {
		name := fmt.Sprint("R", i)
		if len(c.types) > 1 {
			fields += "\n" // gofmt would put what follows on one line
		}
		fields, results = fields+name+" "+typ+";", append(results, done+"."+name)
	}
	results = append(results, c.err)
	kept, returned := done+", "+c.err+" :=", strings.Join(results, ", ")
	if len(results) == 1 {
		kept = "_, " + c.err + " ="
	}
	w.printf("\t%s {idempotent}.Call(%s, %s, %s, []%s{%s}, ", kept, c.ctx, guard, w.keyOf(p, l, c), w.anything(p), strings.Join(c.named[1:], ", "))
	w.printf("func(%s {context}.Context) (%s %s}, %s error) {\n", c.ctx, done, fields, c.err)
	w.printf("\t\t%s = %s(%s%s)\n\t\treturn %s, %s\n\t})\n\treturn %s\n", returned, next, c.ctx, c.rest, done, c.err, returned)
}

// anything is any, where that is Go's own.
func (w *writer) anything(p *part) string {
	for t := range p.params.TypeParams() {
		if t.Obj().Name() == "any" {
			return "interface{}"
		}
	}
	if w.Types.Scope().Lookup("any") != nil {
		return "interface{}"
	}
	return "any"
}
