package surfacetest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// Request is a request that the handler takes, with {} where the value stands: once in the
// path or the query of Target, in the value of a header, or in the body.
type Request struct {
	Method string            // POST, say
	Target string            // as in the request's first line, such as "/orders/{}/pay?shop=1"
	Header map[string]string // may be nil
	Body   string            // JSON or a form, by the header Content-Type; may be empty
}

// HTTP tries a handler, which is most often a router with all its routes, with each of the
// requests in all its forms. Requests come by HTTP/1.1 over a connection each, from a
// client that cleans nothing.
func HTTP(t *testing.T, handler http.Handler, p *Probe, requests ...Request) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	defer server.Close()
	HTTPServer(t, server.Listener.Addr().String(), p, requests...)
}

// HTTPServer tries the server that listens at addr, without TLS, as [HTTP] tries a handler:
// for what does not go by net/http.
func HTTPServer(t *testing.T, addr string, p *Probe, requests ...Request) {
	t.Helper()
	for _, r := range requests {
		t.Run(r.Method+" "+r.Target, func(t *testing.T) {
			forms, err := r.forms()
			if err != nil {
				t.Fatal(err)
			}
			for _, fault := range try(addr, p, forms) {
				t.Error(fault)
			}
		})
	}
}

// try sends forms, and returns what was wrong.
func try(addr string, p *Probe, forms []form) (found []string) {
	for _, f := range forms {
		p.trying(f.String())
		status, err := send(addr, f)
		switch {
		case err != nil:
			found = append(found, fmt.Sprintf("%s: no answer: %v", f, err))
		case status >= 500 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported:
			found = append(found, fmt.Sprintf("%s: answered %d, which a client must not be able to cause", f, status))
		}
	}
	return append(found, p.judge()...)
}

// form is a request as it is sent, byte by byte.
type form struct {
	method, target string
	header         []string // lines
	body           string
}

func (f form) String() string {
	text := fmt.Sprintf("%s %q", f.method, f.target)
	if len(f.header) > 0 {
		text += fmt.Sprintf(" %q", f.header)
	}
	if f.body != "" {
		text += fmt.Sprintf(" with %.200q", f.body)
	}
	return text
}

// place is where the value of a request stands.
type place struct {
	write func(value string) []written
	with  func(text string) form // the request with that in place of {}
}

const hole = "{}"

// place finds the only hole.
func (r Request) place() (place, error) {
	var header []string
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		header = append(header, name+": "+r.Header[name])
	}
	path, query, hasQuery := strings.Cut(r.Target, "?")
	all := form{r.Method, r.Target, header, r.Body}
	var places []place
	if before, after, ok := strings.Cut(path, hole); ok {
		places = append(places, place{inPath, func(text string) form {
			f := all
			f.target = before + text + after
			if hasQuery {
				f.target += "?" + query
			}
			return f
		}})
	}
	if before, after, ok := strings.Cut(query, hole); ok {
		places = append(places, place{inQuery, func(text string) form {
			f := all
			f.target = path + "?" + before + text + after
			return f
		}})
	}
	for i, line := range header {
		if before, after, ok := strings.Cut(line, hole); ok {
			places = append(places, place{inHeader, func(text string) form {
				f := all
				f.header = slices.Clone(header)
				f.header[i] = before + text + after
				return f
			}})
		}
	}
	if before, after, ok := strings.Cut(r.Body, hole); ok {
		write := inBare
		switch {
		case strings.HasPrefix(r.Header["Content-Type"], "application/x-www-form-urlencoded"):
			write = inQuery
		case strings.HasSuffix(before, `"`):
			write = inJSON
		}
		places = append(places, place{write, func(text string) form {
			f := all
			f.body = before + text + after
			return f
		}})
	}
	if len(places) != 1 || strings.Count(r.Target+strings.Join(header, "")+r.Body, hole) != 1 {
		return place{}, errors.New("{} stands where the value goes: once in Target, in the value of a header, or in Body")
	}
	return places[0], nil
}

// forms returns all that is sent for a request.
func (r Request) forms() ([]form, error) {
	at, err := r.place()
	if err != nil {
		return nil, err
	}
	var all []form
	for _, value := range spellings {
		for _, w := range at.write(value) {
			all = append(all, at.with(w.text))
		}
	}
	// Two values in one request: what is bound may be the one and what is locked the other.
	for _, pair := range [][2]string{{"1", "2"}, {"anna", "bert"}} {
		first, second := at.with(pair[0]), at.with(pair[1])
		all = append(all, first, second)
		all = append(all, otherPaths(first)...)
		all = append(all, otherQueries(first, second, pair)...)
		all = append(all, otherHeaders(first, second)...)
		all = append(all, otherBodies(first, second)...)
		all = append(all, otherMethods(first)...)
	}
	return all, nil
}

// otherPaths writes the path in ways that some router may clean, and some may not.
func otherPaths(f form) []form {
	path, query, hasQuery := strings.Cut(f.target, "?")
	if hasQuery {
		query = "?" + query
	}
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	paths := []string{
		"/" + path, path + "/", "/." + path, "/x/.." + path, path + "/.", path + "/x/..", path + ";x=1", path + "%2F", path + "%3F", path + "%00", "http://other" + path,
		strings.ToUpper(path), strings.ReplaceAll(path, "/", "//"), strings.ReplaceAll(path, "/", "/./"), strings.ReplaceAll(path, "/", "\\"), path + "%",
	}
	for i, s := range segments {
		encoded := slices.Clone(segments)
		if s == "" {
			continue
		}
		encoded[i] = fmt.Sprintf("%%%02x%s", s[0], s[1:])
		paths = append(paths, "/"+strings.Join(encoded, "/"))
		encoded[i] = s + ";a=b"
		paths = append(paths, "/"+strings.Join(encoded, "/"))
		if i > 0 {
			encoded[i] = s
			paths = append(paths, "/"+strings.Join(encoded[:i], "/")+"%2f"+strings.Join(encoded[i:], "/"))
		}
	}
	var all []form
	for _, p := range paths {
		if strings.Contains(p, "%") && strings.Contains(path, "%") {
			continue // it is encoded already
		}
		g := f
		g.target = p + query
		all = append(all, g)
	}
	return all
}

// otherQueries gives a parameter twice, in ways that are read differently.
func otherQueries(first, second form, values [2]string) []form {
	path, query, ok := strings.Cut(first.target, "?")
	if !ok {
		// What should have no effect at all.
		var all []form
		for _, q := range []string{"?", "?id=" + values[1], "?%zz", "?a;b", "?" + strings.Repeat("a=1&", 2000)} {
			g := first
			g.target = path + q
			all = append(all, g)
		}
		return all
	}
	_, other, _ := strings.Cut(second.target, "?")
	var all []form
	for _, q := range append(twice(query, other),
		"%zz&"+query, "%zz="+other+"&"+query, query+";"+other, other+";"+query, "a;"+query, "a=1;"+other+"&"+query, "a=%&"+query, query+"&a=%",
		strings.Repeat("a=1&", 2000)+query, query+"&"+strings.Repeat("a=1&", 2000)+other,
	) {
		g := first
		g.target = path + "?" + q
		all = append(all, g)
	}
	return all
}

// twice joins two pairs of names and values of a query or a form, of which the second says
// something else under what some readers take for the same name.
func twice(first, second string) []string {
	name, value, _ := strings.Cut(second, "=")
	all := []string{first + "&" + second, second + "&" + first}
	for _, other := range []string{
		fmt.Sprintf("%%%02x%s", name[0], name[1:]), strings.ToUpper(name), strings.ToLower(name), name + "[]", name + "[0]", name + "%00", name + ".", "+" + name, name + "+", url.QueryEscape(" " + name),
	} {
		all = append(all, first+"&"+other+"="+value, other+"="+value+"&"+first, other+"="+value)
	}
	return append(all, first+"&"+name, name+"&"+first, name+"=&"+first, first+"&"+name+"=")
}

// otherHeaders gives a header twice, and adds what may override parts of a request.
func otherHeaders(first, second form) []form {
	var all []form
	with := func(base form, lines ...string) {
		g := base
		g.header = append(slices.Clone(base.header), lines...)
		all = append(all, g)
	}
	for i := range first.header {
		if first.header[i] == second.header[i] {
			continue
		}
		name, value, _ := strings.Cut(second.header[i], ":")
		value = strings.TrimSpace(value)
		with(first, second.header[i])
		with(second, first.header[i])
		with(first, strings.ToUpper(name)+": "+value)
		with(first, strings.ReplaceAll(name, "-", "_")+": "+value)
		g := first
		g.header = slices.Clone(first.header)
		g.header[i] = first.header[i] + ", " + value
		all = append(all, g)
		g.header = slices.Clone(first.header)
		g.header[i] = name + ":" + strings.Repeat(" ", 10) + value + "\t "
		all = append(all, g)
	}
	path, _, _ := strings.Cut(second.target, "?")
	with(first, "X-HTTP-Method-Override: DELETE")
	with(first, "X-Original-URL: "+path)
	with(first, "X-Rewrite-URL: "+path)
	with(first, "X-Forwarded-For: 192.0.2.7", "Forwarded: for=192.0.2.8")
	with(first, "Content-Encoding: gzip")
	with(first, "Expect: 100-continue")
	return all
}

// otherMethods sends the request by other methods.
func otherMethods(f form) []form {
	var all []form
	for _, m := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", strings.ToLower(f.method), f.method + "X"} {
		g := f
		g.method = m
		all = append(all, g)
	}
	return all
}

// otherBodies says two things in one body, and says by its header that it is something else.
func otherBodies(first, second form) []form {
	if first.body == "" {
		// A body that has no business here.
		g := first
		g.header = append(slices.Clone(first.header), "Content-Type: application/x-www-form-urlencoded")
		g.body = "id=2&sku=bert"
		return []form{g}
	}
	var bodies []string
	object := strings.HasPrefix(first.body, "{") && strings.HasSuffix(first.body, "}")
	if object {
		one, two := first.body[1:len(first.body)-1], second.body[1:len(second.body)-1]
		name, value, _ := strings.Cut(two, ":")
		name = strings.Trim(name, ` "`)
		add := func(member string) {
			bodies = append(bodies, "{"+one+","+member+"}", "{"+member+","+one+"}", "{"+member+"}")
		}
		add(two)
		for _, other := range []string{
			strings.ToUpper(name), strings.ToLower(name), strings.Title(name), strings.ReplaceAll(name, "s", "ſ"), strings.ReplaceAll(name, "k", "\u212a"), //nolint:staticcheck // of ASCII
			fmt.Sprintf(`\u%04x%s`, name[0], name[1:]), name + `\u0000`, name + " ", "_" + name, strings.ReplaceAll(name, "_", ""),
		} {
			add(`"` + other + `":` + value)
		}
		add(`"` + name + `":null`)
		add(`"` + name + `":[` + value + `]`)
		add(`"` + name + `":{"` + name + `":` + value + `}`)
		add(`"x":{"` + name + `":` + value + `}`)
		bodies = append(bodies, "["+first.body+"]", "["+first.body+","+second.body+"]", `"`+strings.ReplaceAll(first.body, `"`, `\"`)+`"`, "null", "{"+one+",}",
			"{"+one+"/*,"+two+"*/}", "{"+one+"//\n,"+two+"}", "{'"+name+"':"+value+","+one+"}",
			first.body+second.body, first.body+"\n"+second.body, first.body+"x", " \n"+first.body+"\n ", "\ufeff"+first.body, first.body[:len(first.body)-1],
			"{"+one+`,"x":`+strings.Repeat("[", 200)+strings.Repeat("]", 200)+"}", "{"+one+`,"x":`+strings.Repeat("[", 100_000)+"}",
			utf16(first.body), "{"+one+`,"x":"`+"\xff"+`"}`)
	} else {
		bodies = append(twice(first.body, second.body), first.body+";"+second.body, "a;b&"+first.body, "%zz&"+first.body, first.body+"\r\n", "?"+first.body, first.body+"&"+strings.Repeat("a=1&", 2000))
	}
	var all []form
	for _, b := range bodies {
		g := first
		g.body = b
		all = append(all, g)
	}
	// The same bytes, said to be something else.
	var rest []string
	for _, line := range first.header {
		if name, _, _ := strings.Cut(line, ":"); !strings.EqualFold(name, "Content-Type") {
			rest = append(rest, line)
		}
	}
	for _, lines := range [][]string{
		{},
		{"Content-Type: text/plain"},
		{"Content-Type: application/json"},
		{"Content-Type: Application/JSON"},
		{"Content-Type: application/json; charset=utf-16"},
		{"Content-Type: application/json, text/plain"},
		{"Content-Type: text/json"},
		{"Content-Type: application/problem+json"},
		{"Content-Type: application/x-www-form-urlencoded"},
		{"Content-Type: application/X-WWW-form-urlencoded;x"},
		{"Content-Type: multipart/form-data; boundary=b"},
		{"Content-Type: application/xml"},
		{"Content-Type: application/yaml"},
		{"Content-Type: application/x-yaml"},
		{"Content-Type: application/toml"},
		{"Content-Type: application/x-protobuf"},
		{"Content-Type: application/x-msgpack"},
		{"Content-Type: ;;"},
		{"Content-Type: application/json", "Content-Type: application/x-www-form-urlencoded"},
		{"Content-Type: application/x-www-form-urlencoded", "Content-Type: application/json"},
	} {
		for _, b := range []string{first.body, second.body} {
			g := first
			g.header, g.body = append(slices.Clone(rest), lines...), b
			all = append(all, g)
		}
	}
	for _, boundary := range []string{"b", "other"} {
		g := first
		g.header = append(slices.Clone(rest), "Content-Type: multipart/form-data; boundary="+boundary)
		g.body = multipart(first.body) + multipart(second.body) + "--b--\r\n"
		all = append(all, g)
	}
	// A value in the query beside that in the body.
	for _, q := range []string{"id", "sku", "name"} {
		for _, v := range []string{"2", "bert"} {
			g := first
			g.target += "?" + q + "=" + v
			all = append(all, g)
		}
	}
	return all
}

func utf16(s string) string {
	var b strings.Builder
	b.WriteString("\xff\xfe")
	for i := range len(s) {
		b.WriteByte(s[i])
		b.WriteByte(0)
	}
	return b.String()
}

// multipart is a part of a form of that kind.
func multipart(body string) string {
	name, value, _ := strings.Cut(body, "=")
	return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
}

// patience is how long an answer may take on a slow machine.
const patience = time.Minute

// send writes a request as it stands, and returns the status of its answer.
func send(addr string, f form) (status int, err error) {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }() // the answer is in, or an error
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: surfacetest\r\nConnection: close\r\n", f.method, f.target)
	for _, line := range f.header {
		b.WriteString(line + "\r\n")
	}
	if f.body != "" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(f.body))
	}
	b.WriteString("\r\n" + f.body)
	// A server may answer before it has read it all, and hang up.
	_, writing := io.WriteString(conn, b.String())
	in := bufio.NewReader(conn)
	for {
		res, err := http.ReadResponse(in, &http.Request{Method: f.method})
		if err != nil {
			return 0, errors.Join(err, writing)
		}
		_, err = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close() // of a response that was read
		if res.StatusCode >= 200 {
			return res.StatusCode, err
		}
	}
}
