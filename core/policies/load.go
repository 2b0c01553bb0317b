package policies

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/lockaround/lockaround/core"
)

// maxSize is that of a file in bytes: more than any program has policies for.
const maxSize = 1 << 20

// maxFaults is how many faults are told of one file.
const maxFaults = 20

// Error is one fault of a file. It is a [core.ErrPolicy].
type Error struct {
	File   string // as given to Load; empty for Parse
	Line   int    // from 1
	Column int    // from 1, in characters
	Detail string // what is wrong and what would be right; quotes the file
}

// Error returns the fault after its place, as compilers write it.
func (e *Error) Error() string {
	file := e.File
	if file == "" {
		file = "policies"
	}
	return fmt.Sprintf("%s:%d:%d: %s", file, e.Line, e.Column, e.Detail)
}

// Unwrap returns core.ErrPolicy.
func (*Error) Unwrap() error { return core.ErrPolicy }

// Load reads a file, see [Parse]. If it cannot be read, the error is that of the
// operating system.
func Load(path string) (map[string]core.Override, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	return parse(path, data)
}

// read reads a file, of which it needs no more than says that it is too large.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lock policies: %w", err)
	}
	defer func() { _ = f.Close() }() // what was read has been read
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("lock policies: %w", err)
	}
	return data, nil
}

// Parse reads the overrides that data holds as YAML or JSON, by the names of their
// policies. The map is not nil if and only if the error is nil, which joins an [*Error]
// for each fault, of which it tells the first twenty. Parse keeps nothing of data.
func Parse(data []byte) (map[string]core.Override, error) { return parse("", data) }

func parse(file string, data []byte) (map[string]core.Override, error) {
	d := &document{file: file}
	overrides := d.overrides(data)
	if len(d.faults) > 0 {
		return nil, errors.Join(d.faults...)
	}
	return overrides, nil
}

// document is a file that is being read, and what is wrong with it.
type document struct {
	file   string
	faults []error
	names  map[string]*yaml.Node // of policies, where they stand
}

// at notes a fault.
func (d *document) at(line, column int, format string, a ...any) {
	switch n := len(d.faults); {
	case n < maxFaults:
		d.faults = append(d.faults, &Error{File: d.file, Line: line, Column: column, Detail: fmt.Sprintf(format, a...)})
	case n == maxFaults:
		d.faults = append(d.faults, &Error{File: d.file, Line: line, Column: column, Detail: "there are more faults from here on"})
	}
}

// fault notes a fault of n.
func (d *document) fault(n *yaml.Node, format string, a ...any) {
	d.at(n.Line, n.Column, format, a...)
}

// root returns the one value of a file, or nil if it cannot be had.
func (d *document) root(data []byte) *yaml.Node {
	if len(data) > maxSize {
		d.at(1, 1, "the file has more than %d bytes, which no list of policies needs; is it the right file?", maxSize)
		return nil
	}
	if d.unreadable(data) {
		return nil
	}
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		d.malformed(err)
		return nil
	}
	var first, second yaml.Node
	switch err := loader.Load(&first); {
	case errors.Is(err, io.EOF):
		d.at(1, 1, "the file is empty; write policies: {} if nothing is to be overridden")
		return nil
	case err != nil:
		d.malformed(err)
		return nil
	}
	switch err := loader.Load(&second); {
	case err == nil:
		d.fault(&second, "a second document begins here; put all policies into one")
		return nil
	case !errors.Is(err, io.EOF):
		d.malformed(err)
		return nil
	}
	root := first.Content[0]
	if d.indirect(root) {
		return nil
	}
	return root
}

// unreadable notes the first byte that is no text.
func (d *document) unreadable(data []byte) bool {
	line, column := 1, 1
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			d.at(line, column, "the byte %#02x is not UTF-8; save the file as UTF-8", data[i])
			return true
		case unicode.IsControl(r) && r != '\t' && r != '\n' && r != '\r' && r != '\u0085':
			d.at(line, column, "the control character %U cannot be here; remove it", r)
			return true
		}
		i += size
		column++
		if r == '\n' {
			line, column = line+1, 1
		}
	}
	return false
}

// malformed notes what the parser of YAML says.
func (d *document) malformed(err error) {
	var fault *yaml.LoadError
	if !errors.As(err, &fault) {
		d.at(1, 1, "this is not YAML: %v", err)
		return
	}
	text := fault.Message
	if fault.ContextMsg != "" {
		text += ", " + fault.ContextMsg
		if m := fault.ContextMark; m.Line > 0 && m != fault.Mark {
			text += fmt.Sprintf(" that begins at %d:%d", m.Line, m.Column)
		}
	}
	switch m := fault.Message; {
	case m == "found character that cannot start any token":
		text += "; indent by blanks and not by tabs, and quote a text that begins with @ or `"
	case m == "mapping values are not allowed in this context":
		text += "; quote a text that holds a colon, and indent the fields of one policy alike"
	case m == "found invalid Unicode character escape code":
		text += "; write the character itself"
	case strings.HasPrefix(m, "unknown anchor"):
		text += "; " + writeOut
	}
	d.at(max(fault.Mark.Line, 1), max(fault.Mark.Column, 1), "this is not YAML: %s", text)
}

const writeOut = "write the value out where it is used"

// indirect notes what makes a file mean something else than its lines say.
func (d *document) indirect(n *yaml.Node) bool {
	before := len(d.faults)
	switch {
	case n.Kind == yaml.AliasNode:
		d.fault(n, "the alias *%s cannot be used; %s", n.Value, writeOut)
		return true
	case n.Anchor != "":
		d.fault(n, "the anchor &%s cannot be used; %s", n.Anchor, writeOut)
	case n.ShortTag() == "!!merge":
		d.fault(n, "the merge key << cannot be used; %s", writeOut)
	case n.Style&yaml.TaggedStyle != 0:
		d.fault(n, "the tag %s cannot be used; write the value without it", n.ShortTag())
	}
	for _, inner := range n.Content {
		d.indirect(inner)
	}
	return len(d.faults) > before
}

// entry is a pair of a mapping.
type entry struct {
	name       string
	key, value *yaml.Node
}

// entries yields the pairs of a mapping whose keys are texts, each the first of its
// name, and notes the others. what is n, and should says what belongs there.
func (d *document) entries(n *yaml.Node, what, should string) iter.Seq[entry] {
	return func(yield func(entry) bool) {
		if n.Kind != yaml.MappingNode {
			d.fault(n, "%s is %s; %s", what, describe(n), should)
			return
		}
		first := make(map[string]*yaml.Node)
		for pair := range slices.Chunk(n.Content, 2) {
			e := entry{name: pair[0].Value, key: pair[0], value: pair[1]}
			switch earlier := first[e.name]; {
			case !isText(e.key):
				d.fault(e.key, "a name in %s is %s; write a text, and quote one that looks like something else", what, describe(e.key))
			case e.name == "":
				d.fault(e.key, "a name in %s is empty; %s", what, should)
			case earlier != nil:
				d.fault(e.key, "%s is in %s already, at %d:%d; make them one", quote(e.name), what, earlier.Line, earlier.Column)
			default:
				first[e.name] = e.key
				if !yield(e) {
					return
				}
			}
		}
	}
}

// isEmpty reports whether n is a mapping of nothing.
func isEmpty(n *yaml.Node) bool { return n.Kind == yaml.MappingNode && len(n.Content) == 0 }

func isText(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" }

// describe says what stands in the file.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.ShortTag() == "!!null" && n.Value == "":
		return "empty"
	case isText(n):
		return quote(n.Value)
	}
	return n.Value // a number, a date, true, false or null
}

// quote is %q of a text that fits a line.
func quote(text string) string {
	const most = 60
	if utf8.RuneCountInString(text) > most {
		text = strings.TrimRightFunc(string([]rune(text)[:most]), unicode.IsSpace) + "…"
	}
	return fmt.Sprintf("%q", text)
}
