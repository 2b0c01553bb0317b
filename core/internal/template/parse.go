package template

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// part is a stretch of literal text and the placeholder that follows it. The
// last part of a template has no placeholder and perhaps no text.
type part struct {
	literal string
	name    string // of the placeholder; empty in the last part
	kind    string // of the placeholder; empty if it has none
	list    string // of the placeholder, as it is written before its mark
	ofList  bool   // it has one; the source itself may be the list
	column  int    // of the placeholder's brace, in characters from 1
}

// parse splits a key template into its parts, or says what is wrong
// with it, where, and what would be right.
//
// Two placeholders need a byte between them that no rendered value can hold.
// That makes the rendering reversible: from the left, each value ends at the
// first such byte.
func parse(text string) ([]part, error) {
	var parts []part
	for rest := text; ; {
		at := len(text) - len(rest)
		open := strings.IndexAny(rest, "{}")
		literal := rest
		if open >= 0 {
			literal = rest[:open]
		}
		if i, verb := printfVerb(literal); verb != "" {
			return nil, fmt.Errorf("column %d: %s would be a part of every key, and no value takes its place; a placeholder is written {name}", columnOf(text, at+i), verb)
		}
		if open < 0 {
			return append(parts, part{literal: rest}), nil
		}
		column := columnOf(text, at+open)
		if mark := strings.TrimRight(literal, "$#"); rest[open] == '{' && mark != literal {
			return nil, fmt.Errorf("column %d: %s before '{' would be a part of every key; a placeholder is written {name}, with nothing before the brace", column-1, literal[len(literal)-1:])
		}
		if rest[open] == '}' {
			return nil, fmt.Errorf("column %d: '}' without a '{' before it; a placeholder is written {name}, and a brace cannot be part of a key", column)
		}
		name := rest[open+1:]
		end := strings.IndexAny(name, "{}")
		switch {
		case end < 0:
			return nil, fmt.Errorf("column %d: '{' is never closed; a placeholder is written {name}", column)
		case end == 0 && name[end] == '{':
			return nil, fmt.Errorf("column %d: '{{' is of another template language; a placeholder is written {name}, with one brace and without a dot before the name", column)
		case name[end] == '{':
			return nil, fmt.Errorf("column %d: '{' inside the placeholder that begins at column %d; placeholders do not nest, close the first with '}'",
				columnOf(text, at+open+1+end), column)
		case end == 0:
			return nil, fmt.Errorf("column %d: {} names nothing; write the name of a value between the braces", column)
		}
		within := name[:end]
		if i := strings.IndexFunc(within, isBlank); i >= 0 {
			return nil, fmt.Errorf("column %d: white space in a placeholder's name; write it without, as in {name}", columnOf(text, at+open+1+i))
		}
		name, called, err := cutKind(within)
		if err != nil {
			return nil, fmt.Errorf("column %d: %w", column, err)
		}
		if name == "" {
			return nil, fmt.Errorf("column %d: {%s} names nothing; write the name of a value before the colon", column, within)
		}
		next := part{literal: literal, name: name, kind: called, column: column}
		if err := checkList(name); err != nil {
			return nil, fmt.Errorf("column %d: %w", column, err)
		}
		if next.list, _, next.ofList = strings.Cut(name, listMark); next.ofList {
			for _, p := range parts {
				if p.ofList && p.list != next.list {
					return nil, fmt.Errorf("column %d: {%s} is of another list than {%s}, and a template goes through one; give each an element of Keys", column, name, p.name)
				}
			}
		}
		if len(parts) > 0 && !holdsSeparator(literal) {
			return nil, fmt.Errorf("column %d: nothing separates {%s} from {%s}, so that different values could give the same key; put a character between them that no value can hold, such as ':' or '/' (letters, digits and . _ ~ - %% can be part of a value)",
				column, name, parts[len(parts)-1].name)
		}
		parts = append(parts, next)
		rest = rest[open+1+end+1:]
	}
}

// printfVerb finds what fmt would replace by a value, such as %s, and returns "" if there
// is none. A letter or digit behind it says that it is something else.
func printfVerb(literal string) (at int, verb string) {
	for i := 0; i < len(literal); i++ {
		if literal[i] != '%' {
			continue
		}
		end := i + 1
		for end < len(literal) && strings.IndexByte("+#", literal[end]) >= 0 {
			end++
		}
		if end < len(literal) && strings.IndexByte("sdvqxXt", literal[end]) >= 0 && (end+1 == len(literal) || !isWord(literal[end+1])) {
			return i, literal[i : end+1]
		}
	}
	return 0, ""
}

func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_'
}

func columnOf(text string, at int) int { return utf8.RuneCountInString(text[:at]) + 1 }

func isBlank(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

func holdsSeparator(literal string) bool {
	for i := range len(literal) {
		if separates(literal[i]) {
			return true
		}
	}
	return false
}
