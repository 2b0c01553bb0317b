// Package directive reads the comments that put a lock around a function:
//
//	//lock:with "stock:{sku}" wait=2s mode=shared
//
// A directive is the mark, the key template as a Go string, and options separated by
// blanks. It knows the grammar and what each option takes; whether the template and the
// options make a policy that works is for package core to say.
//
// # Files
//
// directive.go recognizes a directive and parses it; option.go knows its options.
package directive

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockaround/lockaround/core"
)

// Directive is what one comment says.
type Directive struct {
	Key     string        // the template, never empty
	Policy  core.Policy   // what the options set; without Key and Keys
	When    string        // the function or method that says whether a call needs the lock; may be empty
	Once    string        // refuse, rerun or tx, of a call that runs once; else empty
	Keep    time.Duration // of the record of a call that runs once; zero if not written
	Options []Option      // in their order

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

// Mark is what a directive begins with.
const Mark = "//lock:with"

// word is Mark without the slashes.
const word = "lock:with"

// Recognize reports whether a comment, as it stands in the source, is a directive. One
// that was clearly meant as a directive but is written otherwise, and so would be no
// more than a comment, is a fault.
func Recognize(comment string) (is bool, fault *Fault) {
	if rest, ok := strings.CutPrefix(comment, Mark); ok && (rest == "" || isBlank(rest[0]) || isQuote(rest[0])) {
		return true, nil
	}
	block := strings.HasPrefix(comment, "/*")
	for at := min(len("//"), len(comment)); at < len(comment); {
		line := comment[at:]
		if end := strings.IndexByte(line, '\n'); end >= 0 {
			line = line[:end]
		}
		if fault := meant(line, at == len("//") && !block); fault != nil {
			fault.At += at
			if block {
				fault.Text = "a directive in a block comment is not read; write " + Mark + " on a line of its own"
			}
			return false, fault
		}
		at += len(line) + 1
	}
	return false, nil
}

// meant says what is wrong with a line of a comment that was meant as a directive.
// slashes: they stand right before it.
func meant(line string, slashes bool) *Fault {
	text := strings.TrimLeft(line, " \t")
	if strings.HasPrefix(text, "//") {
		return nil // a comment in a comment: an example, or code that was put aside
	}
	text = strings.TrimLeft(text, bullets)
	at := len(line) - len(text)
	first, rest := cutWord(text)
	quoted := rest != "" && isQuote(rest[0])
	switch lower := strings.ToLower(first); {
	case lower == word && at == 0:
		return faultf(at, "a directive is written in lower case; write %s", Mark)
	case lower == word && strings.Trim(line[:at], " \t") == "":
		return faultf(0, "a directive has no blank after the slashes; write %s", Mark)
	case lower == word:
		return faultf(0, "a directive has nothing before it but the slashes; write %s", Mark)
	case slashes && at == 0 && strings.HasPrefix(first, "lock:") && len(first) > len("lock:"),
		quoted && core.Nearest(first, []string{word}) != "",
		slashes && at == 0 && isOfDirective(lower) && (quoted || strings.Contains(lower, "with")),
		quoted && isOfDirective(lower) && isWhole(rest):
		return faultf(at, "%s is no directive; did you mean %s?", first, word)
	case (lower == "lock:" || lower == "lock") && followsWith(rest):
		return faultf(at, "a directive has no blanks in its name; write %s", Mark)
	}
	return nil
}

// bullets may stand before what a line says.
const bullets = " \t-*+•·>#!/@.:"

// isOfDirective reports whether a word is made of those of the mark and no others, one of
// them a lock.
func isOfDirective(lower string) bool {
	locks := false
	for part := range strings.FieldsFuncSeq(lower, func(r rune) bool { return strings.ContainsRune(":._-/@", r) }) {
		switch part {
		case "lock", "locked", "lockwith", "withlock", "lockaround":
			locks = true
		case "with", "go", "distributed":
		default:
			return false
		}
	}
	return locks
}

// isWhole reports whether a line is a template and options from its quote on, and no
// sentence.
func isWhole(text string) bool {
	p := parser{text: Mark + " " + text, at: len(Mark)}
	p.key()
	if len(p.faults) > 0 {
		return false
	}
	for option := range strings.FieldsSeq(p.text[p.at:]) {
		name, _, _ := strings.Cut(option, "=")
		if _, known := find(name); !known {
			return false
		}
	}
	return true
}

// followsWith reports whether text is the second half of a directive that was torn apart.
func followsWith(text string) bool {
	first, rest := cutWord(text)
	return strings.EqualFold(strings.TrimPrefix(first, ":"), "with") && rest != "" && isQuote(rest[0])
}

// cutWord splits off what stands before the first blank or quote, and the blanks.
func cutWord(text string) (first, rest string) {
	end := strings.IndexAny(text, " \t\"`")
	if end < 0 {
		return text, ""
	}
	return text[:end], strings.TrimLeft(text[end:], " \t")
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }
func isQuote(c byte) bool { return c == '"' || c == '`' }

// Fault is something wrong in a comment.
type Fault struct {
	At   int    // offset in the comment, in bytes
	Text string // what is wrong and what would be right
}

func faultf(at int, format string, a ...any) *Fault {
	return &Fault{At: at, Text: fmt.Sprintf(format, a...)}
}
