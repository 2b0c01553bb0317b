package directive

import (
	"fmt"
	"strings"

	"github.com/lockaround/lockaround/core"
)

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
