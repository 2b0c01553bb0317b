package rule

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/body"
)

// listMark is in the name of a value of each element of a list.
const listMark = "[]"

const builtinUsage = "{path.name}, {query.name}, {header.Name}, {body.name} and {client.ip}"

func builtin(prefix string) bool {
	switch prefix {
	case "path", "query", "header", "body", "client":
		return true
	}
	return false
}

// own reads the value that a function given with WithValue returns.
func own[C any, S Source[C]](f func(C) (string, error)) core.Accessor[S] {
	return func(dst []byte, src S) ([]byte, error) {
		v, err := f(src.Origin())
		if err != nil {
			return dst, valueError(err)
		}
		return appendValue(dst, v)
	}
}

// resolve returns how the value of a built-in placeholder is read from a
// request, and notes in r what the key needs.
func resolve[C any, S Source[C]](r *Rule[S], name string) (core.Accessor[S], error) {
	prefix, rest, _ := strings.Cut(name, ".")
	if builtin(prefix) && rest == "" {
		return nil, errors.New("it names no value; use one of " + builtinUsage)
	}
	if builtin(prefix) && prefix != "body" && strings.Contains(name, listMark) {
		return nil, errors.New("a request has lists in its body only: {body.items[].sku}; read a name that ends in [] by WithValue")
	}
	switch prefix {
	case "path":
		r.PathNames = append(r.PathNames, rest)
		return func(dst []byte, src S) ([]byte, error) {
			return appendValue(dst, src.Path(rest))
		}, nil
	case "query":
		return func(dst []byte, src S) ([]byte, error) {
			if malformed(src.RawQuery()) {
				return dst, &body.Fault{Kind: core.ErrInvalid, Reason: "the URL's query is malformed"}
			}
			return appendOnly(dst, src.Query(rest))
		}, nil
	case "header":
		return resolveHeader[C, S](rest)
	case "body":
		list, rest, ofList := strings.Cut(rest, listMark)
		path := strings.Split(list, ".")
		var inner []string
		if rest != "" {
			inner = strings.Split(strings.TrimPrefix(rest, "."), ".")
		}
		if slices.Contains(path, "") || slices.Contains(inner, "") {
			return nil, errors.New("a name between the dots is empty; use {body.name} or {body.outer.inner}")
		}
		r.ReadsBody = true
		if ofList {
			return func(dst []byte, src S) ([]byte, error) { return src.BodyList(dst, path, inner) }, nil
		}
		return func(dst []byte, src S) ([]byte, error) {
			v, err := src.Body(path)
			if err != nil {
				return dst, err
			}
			return appendValue(dst, v)
		}, nil
	case "client":
		if rest != "ip" {
			return nil, errors.New("unknown; use {client.ip}")
		}
		return func(dst []byte, src S) ([]byte, error) { return appendIP(dst, src.ClientIP()) }, nil
	}
	return nil, errors.New("unknown; use one of " + builtinUsage + ", or define it with WithValue")
}

func resolveHeader[C any, S Source[C]](name string) (core.Accessor[S], error) {
	if !HeaderName(name) {
		return nil, errors.New("this cannot be the name of a header; use letters, digits and dashes")
	}
	key := textproto.CanonicalMIMEHeaderKey(name)
	switch key {
	case "Host", "Transfer-Encoding", "Trailer":
		return nil, errors.New("net/http keeps this header elsewhere, so that it is always missing; use WithValue")
	}
	return func(dst []byte, src S) ([]byte, error) {
		return appendOnly(dst, src.Header()[key])
	}, nil
}

// HeaderName reports whether name is a token (RFC 9110, section 5.6.2).
func HeaderName(name string) bool {
	for i := range len(name) {
		switch b := name[i]; {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0:
		default:
			return false
		}
	}
	return name != ""
}

// malformed reports whether net/http leaves out a part of a query. Others may read it: what
// http.AllowQuerySemicolons makes of it, say.
func malformed(query string) bool {
	for i := 0; i < len(query); i++ {
		switch {
		case query[i] == ';':
			return true
		case query[i] != '%':
		case i+2 < len(query) && isHex(query[i+1]) && isHex(query[i+2]):
			i += 2
		default:
			return true
		}
	}
	return false
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// appendIP appends an address in its one spelling: a middleware that knows the proxies may
// have put one there as it came, with or without a port.
func appendIP(dst []byte, address string) ([]byte, error) {
	if address == "" {
		return dst, core.ErrMissing
	}
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return dst, core.ErrInvalid
	}
	return ip.Unmap().AppendTo(dst), nil
}

func appendOnly(dst []byte, vs []string) ([]byte, error) {
	switch len(vs) {
	case 0:
		return dst, core.ErrMissing
	case 1:
		return appendValue(dst, vs[0])
	}
	return dst, core.ErrRepeated
}

func appendValue(dst []byte, v string) ([]byte, error) {
	if v == "" {
		return dst, core.ErrMissing
	}
	return append(dst, v...), nil
}

// valueError gives an error from outside one of the kinds that a key knows.
func valueError(err error) error {
	for _, kind := range []error{core.ErrMissing, core.ErrRepeated, core.ErrInvalid, core.ErrTooLarge} {
		if errors.Is(err, kind) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", core.ErrInvalid, err)
}
