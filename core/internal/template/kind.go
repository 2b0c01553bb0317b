package template

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// speller appends the one spelling of a value, which is not empty, to dst, or reports that
// the value is none of its kind.
type speller func(dst, value []byte) (spelt []byte, ok bool)

// sources are what surfaces call the parts of a call, before a dot.
var sources = []string{"path", "query", "header", "body", "client", "meta", "first"}

// spellers are what may follow the colon of {name:kind}. They are explained at core.NewGuard.
var spellers = map[string]speller{
	"ascii": appendASCII,
	"bool":  appendBool,
	"int":   appendInt,
	"ip":    appendIP,
	"lower": appendLower,
	"time":  appendTime,
	"uuid":  appendUUID,
}

// ofKind spells what an accessor reads.
func ofKind[T any](spell speller, read Accessor[T]) Accessor[T] {
	return func(dst []byte, src T) ([]byte, error) {
		value, err := read(dst, src)
		if err != nil || len(value) == 0 {
			return value, err
		}
		// Behind the value, unless it is not in dst: then what is there is the accessor's.
		end := len(value)
		if cap(dst) == 0 || &dst[:1][0] != &value[0] {
			value = value[:end:end]
		}
		spelt, ok := spell(value, value)
		if !ok {
			return dst, ErrInvalid
		}
		return spelt[end:], nil
	}
}

// cutKind splits what stands between the braces of a placeholder. The kind is empty if
// there is none.
func cutKind(placeholder string) (name, called string, err error) {
	i := strings.LastIndexByte(placeholder, ':')
	if i < 0 {
		return placeholder, "", nil
	}
	name, called = placeholder[:i], placeholder[i+1:]
	known := slices.Sorted(maps.Keys(spellers))
	near := Nearest(called, known)
	hint := "the kinds are " + strings.Join(known, ", ")
	switch {
	case spellers[name[strings.LastIndexByte(name, ':')+1:]] != nil && strings.Contains(name, ":"):
		return "", "", fmt.Errorf("{%s}: there are two kinds; a placeholder has one at most", placeholder)
	case spellers[called] != nil:
		return name, called, nil
	case slices.Contains(sources, name):
		hint = fmt.Sprintf("did you mean {%s.%s}?", name, called)
	case near != "" && len(called) > 2: // two letters are like too much
		hint = fmt.Sprintf("did you mean {%s:%s}?", name, near)
	}
	return "", "", fmt.Errorf("{%s}: what follows the colon is no kind; %s", placeholder, hint)
}

// appendInt takes an optional sign and decimal digits, from -2^63 to 2^64-1.
func appendInt(dst, value []byte) ([]byte, bool) {
	digits, most := value, "18446744073709551615"
	negative := len(value) > 0 && value[0] == '-'
	if negative {
		most = "9223372036854775808"
	}
	if negative || len(value) > 0 && value[0] == '+' {
		digits = value[1:]
	}
	if len(digits) == 0 {
		return dst, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return dst, false
		}
	}
	digits = bytes.TrimLeft(digits, "0")
	switch {
	case len(digits) == 0:
		return append(dst, '0'), true
	case len(digits) > len(most) || len(digits) == len(most) && string(digits) > most:
		return dst, false
	case negative:
		dst = append(dst, '-')
	}
	return append(dst, digits...), true
}

// appendBool takes what strconv.ParseBool does.
func appendBool(dst, value []byte) ([]byte, bool) {
	switch string(value) {
	case "1", "t", "T", "true", "TRUE", "True":
		return append(dst, "true"...), true
	case "0", "f", "F", "false", "FALSE", "False":
		return append(dst, "false"...), true
	}
	return dst, false
}

// appendTime takes an RFC 3339 time. Equal instants have one spelling.
func appendTime(dst, value []byte) ([]byte, bool) {
	var t time.Time
	if t.UnmarshalText(value) != nil {
		return dst, false
	}
	return t.UTC().AppendFormat(dst, time.RFC3339Nano), true
}

// appendUUID takes a UUID as RFC 9562 writes it, in any case, also without its dashes,
// in braces, or with urn:uuid: before it.
func appendUUID(dst, value []byte) ([]byte, bool) {
	const length, urn = 36, "urn:uuid:"
	switch n := len(value); {
	case n == len(urn)+length && strings.EqualFold(string(value[:len(urn)]), urn):
		value = value[len(urn):]
	case n == length+2 && value[0] == '{' && value[n-1] == '}':
		value = value[1 : n-1]
	}
	dashes := len(value) == length
	if !dashes && len(value) != length-4 {
		return dst, false
	}
	start := len(dst)
	for i, c := range value {
		switch {
		case dashes && (i == 8 || i == 13 || i == 18 || i == 23):
			if c != '-' {
				return dst[:start], false
			}
			continue
		case 'A' <= c && c <= 'F':
			c += 'a' - 'A'
		case '0' <= c && c <= '9', 'a' <= c && c <= 'f':
		default:
			return dst[:start], false
		}
		if n := len(dst) - start; n == 8 || n == 13 || n == 18 || n == 23 {
			dst = append(dst, '-')
		}
		dst = append(dst, c)
	}
	return dst, true
}

// appendIP takes an IP address without a zone. An IPv4 address that is mapped into IPv6 is the IPv4
// address.
func appendIP(dst, value []byte) ([]byte, bool) {
	ip, err := netip.ParseAddr(string(value))
	if err != nil || ip.Zone() != "" { // some handlers drop a zone, and some do not
		return dst, false
	}
	return ip.Unmap().AppendTo(dst), true
}

// appendLower takes UTF-8 text that neither begins nor ends with white space. Texts that
// are equal under strings.EqualFold have one spelling. İ and ı are refused: by
// strings.ToLower and strings.ToUpper they become i, and by EqualFold they differ from it.
func appendLower(dst, value []byte) ([]byte, bool) {
	if len(bytes.TrimSpace(value)) != len(value) || !utf8.Valid(value) {
		return dst, false
	}
	start := len(dst)
	for len(value) > 0 {
		r, size := utf8.DecodeRune(value)
		if r == 'İ' || r == 'ı' {
			return dst[:start], false // to some i in another case, and to some not
		}
		dst = utf8.AppendRune(dst, folded(r))
		value = value[size:]
	}
	return dst, true
}

// folded is one of the characters that differ from r by case only, the same for all of
// them: in lower case, if that is one of them.
func folded(r rune) rune {
	least := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	lower := unicode.ToLower(least)
	for next := unicode.SimpleFold(least); next != least; next = unicode.SimpleFold(next) {
		if next == lower {
			return lower
		}
	}
	return least
}

// appendASCII takes printable ASCII characters that neither begin nor end with a blank.
func appendASCII(dst, value []byte) ([]byte, bool) {
	if n := len(value); n > 0 && (value[0] == ' ' || value[n-1] == ' ') {
		return dst, false
	}
	start := len(dst)
	for _, c := range value {
		switch {
		case c < ' ' || c > '~':
			return dst[:start], false
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst, true
}
