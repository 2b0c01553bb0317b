package middleware

import (
	"errors"
	"fmt"

	"go.yaml.in/yaml/v4"
)

// maxNesting is how deep a document in YAML or TOML may be nested. Their decoders follow it
// by recursion, as deep as a client likes, and one of YAML copies what an alias stands for
// as often as a client likes.
const maxNesting = 128

// maxValues is how many values a document in YAML may have, of which a decoder may need
// two kilobytes for each.
const maxValues = 20_000

var errNesting = fmt.Errorf("the body is nested more than %d deep", maxNesting)

// checkYAML refuses documents that cost more than they are long.
func checkYAML(doc []byte) error {
	before := byte(' ')
	for _, c := range doc {
		// An alias begins a value. This does not go by how a decoder finds that.
		if c == '*' && !isAlphanumeric(before) {
			return errors.New("the body may have an alias, which is not taken; a * is taken behind a letter or a digit")
		}
		before = c
	}
	var root yaml.Node
	if err := yaml.Unmarshal(doc, &root); err != nil {
		return err
	}
	values := 0
	return checkValues(&root, maxNesting, &values)
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// checkValues refuses a node that has more below it than left levels, or with which the
// values are too many.
func checkValues(n *yaml.Node, left int, values *int) error {
	if left < 0 {
		return errNesting
	}
	if *values++; *values > maxValues {
		return fmt.Errorf("the body has more than %d values", maxValues)
	}
	for _, inner := range n.Content {
		if err := checkValues(inner, left-1, values); err != nil {
			return err
		}
	}
	return nil
}

// checkTOML refuses documents that are nested too deep: by brackets, and by the dots in
// names, of which those of numbers count as well.
func checkTOML(doc []byte) error {
	brackets, dots := 0, 0
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; c {
		case '"', '\'':
			end := endOfString(doc[i:])
			if end < 0 {
				return errors.New("the body has a string that does not end")
			}
			i += end - 1
		case '#':
			for i+1 < len(doc) && doc[i+1] != '\n' {
				i++
			}
		case '[', '{':
			brackets++
			dots = 0
		case ']', '}':
			brackets = max(brackets-1, 0)
		case ',', '\n':
			dots = 0
		case '.':
			dots++
		}
		if brackets+dots > maxNesting {
			return errNesting
		}
	}
	return nil
}

// endOfString is the length of the TOML string that s begins with, or -1.
func endOfString(s []byte) int {
	quote, escapes := s[0], s[0] == '"'
	long := len(s) >= 3 && s[1] == quote && s[2] == quote
	i := 1
	if long {
		i = 3
	}
	for ; i < len(s); i++ {
		switch {
		case s[i] == '\\' && escapes:
			i++
		case s[i] == '\n' && !long:
			return -1
		case s[i] == quote && !long:
			return i + 1
		case s[i] == quote && i+2 < len(s) && s[i+1] == quote && s[i+2] == quote:
			// One or two quotes may stand before the three that end it.
			for i += 3; i < len(s) && s[i] == quote; i++ {
			}
			return i
		}
	}
	return -1
}
