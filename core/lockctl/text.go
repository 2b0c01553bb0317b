package main

import (
	"cmp"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// quote returns a key, or what else a store has, for people: as it is if it consists of printable
// characters without spaces, and otherwise quoted as in Go. Different strings stay different.
func quote(s string) string {
	if s != "" && s[0] != '"' && utf8.ValidString(s) && strings.IndexFunc(s, unprintable) < 0 {
		return s
	}
	return strconv.Quote(s)
}

// unprintable reports whether a character could be mistaken, or does something to a terminal.
func unprintable(r rune) bool { return unicode.IsSpace(r) || !strconv.IsPrint(r) }

// unquote is the inverse of quote, for arguments.
func unquote(s string) (string, error) {
	if !strings.HasPrefix(s, `"`) {
		return s, nil
	}
	key, err := strconv.Unquote(s)
	if err != nil {
		return "", misuse(`a key that begins with " is read as Go reads a string, and this one cannot be: %s`, strconv.Quote(s))
	}
	return key, nil
}

// inert returns a text in which nothing acts on a terminal but its lines' ends.
func inert(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "?") {
		if r == '\n' || strconv.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		q := strconv.QuoteRune(r)
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}

// oneLine returns a text as a line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// secrets are what is never printed.
type secrets []string

// secretsOf returns the secrets in texts that are URLs, or have one, as they write them and as
// they are.
func secretsOf(texts ...string) secrets {
	var all secrets
	for _, text := range texts {
		if _, rest, found := strings.Cut(text, "://"); found {
			all.collect(rest)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(all)
}

// collect adds the secrets of what follows the scheme of a URL.
func (all *secrets) collect(rest string) {
	add := func(s string) {
		for _, form := range []string{s, unescaped(s)} {
			if form != "" && !slices.Contains(*all, form) {
				quoted := strconv.Quote(form)
				*all = append(*all, form, url.QueryEscape(form), url.PathEscape(form), quoted[1:len(quoted)-1])
			}
		}
	}
	authority, _, _ := strings.Cut(rest, "/")
	// An @ in a password that was not escaped may be behind a slash or a question mark.
	for _, part := range []string{authority, rest} {
		if i := strings.LastIndexByte(part, '@'); i >= 0 {
			if _, password, found := strings.Cut(part[:i], ":"); found {
				add(password)
			}
		}
	}
	if _, query, found := strings.Cut(rest, "?"); found {
		for _, pair := range strings.Split(query, "&") {
			if name, value, _ := strings.Cut(pair, "="); strings.Contains(strings.ToLower(name), "pass") {
				add(value)
			}
		}
	}
}

func unescaped(s string) string {
	if u, err := url.PathUnescape(s); err == nil {
		return u
	}
	return s
}

// scrub takes the secrets out of a text.
func (all secrets) scrub(s string) string {
	for _, secret := range all {
		s = strings.ReplaceAll(s, secret, "xxxxx")
		s = strings.ReplaceAll(s, inert(secret), "xxxxx")
	}
	return s
}

// table writes rows in columns. The last column is not filled up.
func table(w io.Writer, rows [][]string) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row[:max(0, len(row)-1)] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, _ = io.WriteString(w, b.String()) // what cannot be written cannot be told
}
