// Package directive reads the comments that put a lock around a function:
//
//	//lock:with "stock:{sku}" wait=2s mode=shared
//
// A directive is the mark, the key template as a Go string, and options separated by
// blanks. It knows the grammar and what each option takes; whether the template and the
// options make a policy that works is for package core to say.
package directive

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lockaround/lockaround/core"
)

// Directive is what one comment says.
type Directive struct {
	Key     string      // the template, never empty
	Policy  core.Policy // what the options set; without Key and Keys
	When    string      // the function or method that says whether a call needs the lock; may be empty
	Options []Option    // in their order

	KeyAt   int    // offset in the comment of the template's opening quote
	literal string // the template as it is written, with its quotes
}

// Option is one option as it is written.
type Option struct {
	Name, Value string // Value is empty where the option takes none
	At, ValueAt int    // offsets in the comment
}

// Parse reads a comment that [Recognize] found to be a directive. It returns every fault
// in it; the directive is of use only if there is none.
func Parse(comment string) (Directive, []Fault) {
	p := parser{text: strings.TrimRight(comment, " \t\r"), at: len(Mark)}
	p.key()
	for p.blanks(); p.at < len(p.text); p.blanks() {
		p.option()
	}
	return p.Directive, p.faults
}

// String writes the directive as Parse reads it.
func (d Directive) String() string {
	var b strings.Builder
	b.WriteString(Mark + " " + strconv.Quote(d.Key))
	for _, o := range d.Options {
		b.WriteString(" " + o.Name)
		if o.Value == "" {
			continue
		}
		b.WriteByte('=')
		if quoted := strconv.Quote(o.Value); strings.ContainsAny(o.Value, " \t`") || quoted != `"`+o.Value+`"` {
			b.WriteString(quoted)
		} else {
			b.WriteString(o.Value)
		}
	}
	return b.String()
}

// OffsetOf is where in the comment the byte at index of Key stands.
func (d Directive) OffsetOf(index int) int {
	quote, rest := d.literal[0], d.literal[1:]
	if quote == '`' {
		return d.KeyAt + 1 + index
	}
	for n := 0; n < index; {
		r, multibyte, tail, err := strconv.UnquoteChar(rest, quote)
		if err != nil {
			break
		}
		if n++; multibyte {
			n += utf8.RuneLen(r) - 1
		}
		rest = tail
	}
	return d.KeyAt + len(d.literal) - len(rest)
}

// parser goes through a comment from left to right.
type parser struct {
	Directive
	text   string
	at     int
	faults []Fault
}

func (p *parser) fault(at int, format string, a ...any) {
	p.faults = append(p.faults, *faultf(at, format, a...))
}

func (p *parser) blanks() {
	for p.at < len(p.text) && isBlank(p.text[p.at]) {
		p.at++
	}
}

// upTo returns the text before the first of the characters, and goes there.
func (p *parser) upTo(chars string) string {
	rest := p.text[p.at:]
	if end := strings.IndexAny(rest, chars); end >= 0 {
		rest = rest[:end]
	}
	p.at += len(rest)
	return rest
}

// key reads the template.
func (p *parser) key() {
	const example = Mark + ` "stock:{sku}"`
	start := p.at
	p.blanks()
	switch {
	case p.at == len(p.text):
		p.fault(start, "the key template is missing; write it as a Go string, as in %s", example)
		return
	case !isQuote(p.text[p.at]):
		start = p.at
		first := p.upTo(" \t")
		name, _, isOption := strings.Cut(first, "=")
		if _, known := find(name); isOption || known {
			p.at = start
			p.fault(start, "the key template comes first, before the options, as in %s", example)
			return
		}
		p.fault(start, "the key template is not quoted; write it as a Go string, as in %s", example)
		return
	case p.at == start:
		p.fault(start, "a blank is missing between %s and the key template", Mark)
	}
	p.KeyAt = p.at
	if p.Key = p.quoted("the key template"); p.Key == "" && len(p.faults) == 0 {
		p.fault(p.KeyAt, "the key template is empty; write what is to be locked, as in %s", example)
	}
	p.literal = p.text[p.KeyAt:p.at]
}

// quoted reads a Go string. After a fault it goes to the end.
func (p *parser) quoted(what string) string {
	start := p.at
	literal, err := strconv.QuotedPrefix(p.text[start:])
	if err != nil {
		p.at = len(p.text)
		if quote := p.text[start : start+1]; strings.Count(p.text[start:], quote) == 1 {
			p.fault(start, "%s is not terminated; close it with %s", what, quote)
		} else {
			p.fault(start, "%s is no Go string; check its quotes and its \\ escapes", what)
		}
		return ""
	}
	p.at += len(literal)
	if p.at < len(p.text) && !isBlank(p.text[p.at]) {
		p.fault(p.at, "a blank is missing after %s", what)
	}
	value, _ := strconv.Unquote(literal) // QuotedPrefix has checked it
	return value
}

// parted reports whether blanks stand around the = of an option whose name was read, and goes
// to the =. What comes after an = and blanks is its value unless it is an option itself.
func (p *parser) parted(o Option) bool {
	rest := p.text[p.at:]
	before := len(rest) - len(strings.TrimLeft(rest, " \t"))
	value, ok := strings.CutPrefix(rest[before:], "=")
	if !ok || o.Name == "" {
		return false
	}
	next := strings.TrimLeft(value, " \t")
	if next == "" || before == 0 && next == value {
		return false
	}
	first, _ := cutWord(next)
	name, _, isOption := strings.Cut(first, "=")
	if _, known := find(name); next != value && !isQuote(next[0]) && (isOption || known) {
		return false
	}
	p.at += before
	return true
}

// option reads one option and sets what it says.
func (p *parser) option() {
	o := Option{At: p.at}
	o.Name = p.upTo(" \t=\"`")
	parted := p.parted(o)
	equals := p.at < len(p.text) && p.text[p.at] == '='
	if equals {
		p.at++
		if parted {
			p.blanks()
		}
		o.ValueAt = p.at
		if p.at < len(p.text) && isQuote(p.text[p.at]) {
			faults := len(p.faults)
			if o.Value = p.quoted("the value of " + o.Name); len(p.faults) > faults {
				return
			}
		} else {
			o.Value = p.upTo(" \t")
		}
	} else if o.Name == "" || p.at < len(p.text) && !isBlank(p.text[p.at]) {
		p.fault(p.at, "there is a second string; a directive has one key template, and each further key a %s of its own", Mark)
		p.at = len(p.text)
		return
	}
	if parted {
		p.fault(o.At, "option %s has blanks around its =; write %[1]s=%s", o.Name, p.text[o.ValueAt:p.at])
	}
	term, known := find(o.Name)
	switch {
	case o.Name == "":
		p.fault(o.At, "an option has no name; write it before the =, as in wait=2s")
	case !known:
		p.fault(o.At, "there is no option %s%s", o.Name, suggestion(o.Name, names()))
	case slices.ContainsFunc(p.Options, func(other Option) bool { return other.Name == o.Name }):
		p.fault(o.At, "option %s is set twice; set it once", o.Name)
	case !term.takesValue() && equals:
		p.fault(o.At, "option %s takes no value; write %[1]s alone, or leave it out", o.Name)
	case term.takesValue() && o.Value == "":
		p.fault(o.At, "option %s needs a value, as in %s", o.Name, term.example)
	default:
		if err := term.apply(&p.Directive, o.Value); err != nil {
			p.fault(o.ValueAt, "%s: %v", o.Name, err)
		}
		p.Options = append(p.Options, o)
	}
}
