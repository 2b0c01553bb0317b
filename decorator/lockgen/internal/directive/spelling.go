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
	text := comment[min(len("//"), len(comment)):]
	at := len(comment) - len(strings.TrimLeft(text, " \t"))
	first, rest := cutWord(comment[at:])
	if strings.HasPrefix(first, "//") {
		return false, nil // a comment in a comment: an example, or code that was put aside
	}
	quoted := rest != "" && isQuote(rest[0])
	switch lower := strings.ToLower(first); {
	case strings.HasPrefix(comment, "/*"):
		if lower == word {
			return false, faultf(0, "a directive in a block comment is not read; write %s on a line of its own", Mark)
		}
	case lower == word && at > len("//"):
		return false, faultf(len("//"), "a directive has no blank after the slashes; write %s", Mark)
	case lower == word:
		return false, faultf(at, "a directive is written in lower case; write %s", Mark)
	case at == len("//") && strings.HasPrefix(first, "lock:") && len(first) > len("lock:"),
		quoted && core.Nearest(first, []string{word}) != "":
		return false, faultf(at, "%s is no directive; did you mean %s?", first, word)
	case (lower == "lock:" || lower == "lock") && followsWith(rest):
		return false, faultf(at, "a directive has no blanks in its name; write %s", Mark)
	}
	return false, nil
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
