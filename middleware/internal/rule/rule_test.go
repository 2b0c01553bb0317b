package rule

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

// source is a request of which everything is known.
type source struct {
	values map[string][]string // by placeholder
	err    error               // of the body
}

func (s *source) Origin() *source { return s }

func (s *source) one(name string) string { return strings.Join(s.values[name], "") }

func (s *source) Path(name string) string { return s.one("path." + name) }

func (s *source) Query(name string) []string { return s.values["query."+name] }

func (s *source) RawQuery() string { return s.one("raw query") }

func (s *source) Header() http.Header { return http.Header{"X-Tenant": s.values["header"]} }

func (s *source) Body(path []string) (string, error) {
	return s.one("body." + strings.Join(path, ".")), s.err
}

func (s *source) BodyList(dst []byte, list, rest []string) ([]byte, error) {
	all := s.values["body."+strings.Join(list, ".")+"[]"+strings.Join(rest, ".")]
	return core.AppendList(dst, len(all), func(dst []byte, i int) ([]byte, error) { return append(dst, all[i]...), nil })
}

func (s *source) ClientIP() string { return s.one("client.ip") }

func open(t *testing.T) *core.Engine {
	t.Helper()
	e, err := core.New(memlock.New(), core.WithNamespace("test"), core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func TestPlaceholdersAreReadFromTheirSource(t *testing.T) {
	failure := errors.New("said by a function")
	var s Settings[*source]
	for name, f := range map[string]func(*source) (string, error){
		"own":      func(s *source) (string, error) { return s.one("own"), nil },
		"repeated": func(*source) (string, error) { return "", core.ErrRepeated },
		"broken":   func(*source) (string, error) { return "", failure },
	} {
		if err := s.AddValue(name, f); err != nil {
			t.Fatal(err)
		}
	}
	with := func(name string, vs ...string) *source { return &source{values: map[string][]string{name: vs}} }
	for _, tc := range []struct {
		key  string
		src  *source
		want string
		err  error
	}{
		{key: "{path.x}", src: with("path.x", "a"), want: "a"},
		{key: "{path.x}", src: with("path.y", "a"), err: core.ErrMissing},
		{key: "{query.x}", src: with("query.x", "a"), want: "a"},
		{key: "{query.x}", src: with("query.x"), err: core.ErrMissing},
		{key: "{query.x}", src: with("query.x", ""), err: core.ErrMissing},
		{key: "{query.x}", src: with("query.x", "a", "a"), err: core.ErrRepeated},
		{key: "{header.x-TENANT}", src: with("header", "a"), want: "a"},
		{key: "{header.x-tenant}", src: with("header", "a", "b"), err: core.ErrRepeated},
		{key: "{body.a.b}", src: with("body.a.b", "a"), want: "a"},
		{key: "{body.a.b}", src: &source{err: core.ErrTooLarge}, err: core.ErrTooLarge},
		{key: "{client.ip}", src: with("client.ip", "::1"), want: "%3A%3A1"},
		{key: "{client.ip}", src: with("client.ip"), err: core.ErrMissing},
		{key: "{client.ip}", src: with("client.ip", "1.2.3.4:5"), want: "1.2.3.4"},
		{key: "{client.ip}", src: with("client.ip", "::ffff:1.2.3.4"), want: "1.2.3.4"},
		{key: "{client.ip}", src: with("client.ip", "[::ffff:1.2.3.4]:5"), want: "1.2.3.4"},
		{key: "{client.ip}", src: with("client.ip", "2001:DB8:0:0::0001"), want: "2001%3Adb8%3A%3A1"},
		{key: "{client.ip}", src: with("client.ip", "[2001:db8::1]:443"), want: "2001%3Adb8%3A%3A1"},
		{key: "{client.ip}", src: with("client.ip", "fe80::1%eth0"), want: "fe80%3A%3A1%25eth0"},
		{key: "{client.ip}", src: with("client.ip", "proxy:80"), err: core.ErrInvalid},
		{key: "{path.id:int}", src: with("path.id", "+01"), want: "1"},
		{key: "{path.id:int}", src: with("path.id", "1x"), err: core.ErrInvalid},
		{key: "{own}", src: with("own", "a"), want: "a"},
		{key: "{own}", src: with("own"), err: core.ErrMissing},
		{key: "{repeated}", src: with(""), err: core.ErrRepeated},
		{key: "{broken}", src: with(""), err: core.ErrInvalid},
		{key: "{broken}", src: with(""), err: failure},
	} {
		r, err := Compile[*source, *source](open(t), core.Policy{Key: "k:" + tc.key}, &s)
		if err != nil {
			t.Fatal(err)
		}
		l, err := r.Guard.Acquire(t.Context(), tc.src)
		if tc.err != nil {
			invalid := errors.Is(tc.err, core.ErrInvalid) || errors.Is(tc.err, failure)
			if !errors.Is(err, core.ErrKey) || !errors.Is(err, tc.err) || errors.Is(err, core.ErrInvalid) != invalid {
				t.Errorf("%s of %v: got %v; want %v", tc.key, tc.src.values, err, tc.err)
			}
			continue
		}
		if err != nil || l.Key() != "k:"+tc.want {
			t.Errorf("%s of %v: got %v; want %s", tc.key, tc.src.values, err, tc.want)
		}
	}
}

func TestRuleTellsWhatItsKeyNeeds(t *testing.T) {
	var s Settings[*source]
	r, err := Compile[*source, *source](open(t), core.Policy{Key: "{path.a}:{path.b}:{body.c}", Name: "n"}, &s)
	if err != nil {
		t.Fatal(err)
	}
	if r.Name != "n" || !slices.Equal(r.PathNames, []string{"a", "b"}) || !r.ReadsBody || len(r.Used) != 3 || !r.Used["body.c"] {
		t.Errorf("got %+v", r)
	}
}

func TestListOfABodyIsAKeyForEachElement(t *testing.T) {
	var s Settings[*source]
	for key, name := range map[string]string{"{body.items[].a.b}": "body.items[]a.b", "{body.x.y[]}": "body.x.y[]"} {
		r, err := Compile[*source, *source](open(t), core.Policy{Keys: []string{key}}, &s)
		if err != nil || !r.ReadsBody {
			t.Fatal(r, err)
		}
		l, err := r.Guard.Acquire(t.Context(), &source{values: map[string][]string{name: {"2", "1"}}})
		if err != nil || !slices.Equal(l.Keys(), []string{"1", "2"}) {
			t.Errorf("%s: %v, %v", key, l.Keys(), err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for name, says := range map[string]string{
		"query.ids[]":      "a request has lists in its body only: {body.items[].sku}; read a name that ends in [] by WithValue",
		"path.ids[]":       "in its body only",
		"header.ids[]":     "in its body only",
		"client.ip[]":      "in its body only",
		"body[].sku":       "unknown",
		"items[].sku":      "unknown",
		"body.a..b[].c":    "empty",
		"body.items[].a.":  "empty",
		"body.a[].b[].sku": "goes through two lists",
	} {
		_, err := Compile[*source, *source](open(t), core.Policy{Keys: []string{"{" + name + "}"}}, &s)
		if !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), says) {
			t.Errorf("{%s}: got %v; want an error about %q", name, err, says)
		}
	}
	if _, err := CompileKey[*source, *source]("{body.items[].sku}", &s); !errors.Is(err, core.ErrPolicy) {
		t.Errorf("a key alone: %v", err)
	}
}

func TestKeyAloneIsRenderedAsThatOfALock(t *testing.T) {
	var s Settings[*source]
	r, err := CompileKey[*source, *source]("k:{path.a}:{body.c}", &s)
	if err != nil {
		t.Fatal(err)
	}
	if r.Name != "k:{path.a}:{body.c}" || !slices.Equal(r.PathNames, []string{"a"}) || !r.ReadsBody || len(r.Used) != 2 {
		t.Errorf("got %+v", r)
	}
	if key, err := r.Render(&source{values: map[string][]string{"path.a": {"x:"}, "body.c": {"y"}}}); err != nil || key != "k:x%3A:y" {
		t.Errorf("rendered %q, %v", key, err)
	}
	if _, err := CompileKey[*source, *source]("{cookie.x}", &s); !errors.Is(err, core.ErrPolicy) {
		t.Errorf("a placeholder that there is not: %v", err)
	}
}

func TestPlaceholdersThatCannotWorkAreRefused(t *testing.T) {
	var s Settings[*source]
	for name, says := range map[string]string{
		"x":           "WithValue",
		"cookie.x":    "unknown",
		"path":        "names no value",
		"query.":      "names no value",
		"body.a..b":   "empty",
		"client.port": "{client.ip}",
		"header.X(Y)": "name of a header",
		"header.host": "WithValue",
	} {
		_, err := Compile[*source, *source](open(t), core.Policy{Key: "{" + name + "}"}, &s)
		if !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), says) {
			t.Errorf("{%s}: got %v; want an error about %q", name, err, says)
		}
	}
	if _, err := Compile[*source, *source](nil, core.Policy{Key: "k"}, &s); err == nil || !strings.Contains(err.Error(), "core.New") {
		t.Errorf("without an engine: got %v", err)
	}
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	value := func(*source) (string, error) { return "v", nil }
	type settings = *Settings[*source]
	for _, tc := range []struct {
		name  string
		given []func(settings) error
		says  string // the last one's error; "" if there is none
	}{
		{name: "all", given: []func(settings) error{
			func(s settings) error { return s.SetFilter(nil) },
			func(s settings) error { return s.AddValue("user.id", value) },
			func(s settings) error { return s.SetBodyLimit(1) },
			settings.Check,
			func(s settings) error { return s.CheckUse(map[string]bool{"user.id": true}, true) },
		}},
		{name: "filter twice", given: []func(settings) error{
			func(s settings) error { return s.SetFilter(nil) }, func(s settings) error { return s.SetFilter(nil) },
		}, says: "twice"},
		{name: "value twice", given: []func(settings) error{
			func(s settings) error { return s.AddValue("v", value) }, func(s settings) error { return s.AddValue("v", value) },
		}, says: "twice"},
		{name: "value without a name", given: []func(settings) error{func(s settings) error { return s.AddValue("", value) }}, says: "empty"},
		{name: "value with braces", given: []func(settings) error{func(s settings) error { return s.AddValue("{v}", value) }}, says: "braces"},
		{name: "value with the name of a list", given: []func(settings) error{func(s settings) error { return s.AddValue("v[]", value) }}, says: "a name with [] is that of a list"},
		{name: "value without a function", given: []func(settings) error{func(s settings) error { return s.AddValue("v", nil) }}, says: "nil"},
		{name: "value that shadows", given: []func(settings) error{func(s settings) error { return s.AddValue("body", value) }}, says: "built in"},
		{name: "value that is not used", given: []func(settings) error{
			func(s settings) error { return s.AddValue("v", value) }, func(s settings) error { return s.CheckUse(nil, false) },
		}, says: "{v}"},
		{name: "limit of nothing", given: []func(settings) error{func(s settings) error { return s.SetBodyLimit(0) }}, says: "WithBodyLimit(0)"},
		{name: "limit without end", given: []func(settings) error{func(s settings) error { return s.SetBodyLimit(1<<63 - 1) }}, says: "2^63-2"},
		{name: "limit of what is not read", given: []func(settings) error{
			func(s settings) error { return s.SetBodyLimit(1) }, settings.SetNoBuffer, settings.Check,
		}, says: "no effect"},
		{name: "needed and not read", given: []func(settings) error{
			settings.SetNoBuffer, settings.Check, func(s settings) error { return s.CheckUse(nil, true) },
		}, says: "{body.…}"},
		{name: "all of a key alone", given: []func(settings) error{
			func(s settings) error { return s.SetBodyLimit(1) },
			func(s settings) error { return s.AddValue("v", value) },
			func(s settings) error { return s.CheckKeyUse(map[string]bool{"v": true}, true) },
		}},
		{name: "value that a key alone does not use", given: []func(settings) error{
			func(s settings) error { return s.AddValue("v", value) }, func(s settings) error { return s.CheckKeyUse(nil, false) },
		}, says: "{v}"},
		{name: "limit of what a key alone does not read", given: []func(settings) error{
			func(s settings) error { return s.SetBodyLimit(1) }, func(s settings) error { return s.CheckKeyUse(nil, false) },
		}, says: "no effect"},
		{name: "not reading what a key alone does not read", given: []func(settings) error{
			settings.SetNoBuffer, func(s settings) error { return s.CheckKeyUse(nil, false) },
		}, says: "no effect"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s Settings[*source]
			for i, give := range tc.given {
				err := give(&s)
				last := i == len(tc.given)-1
				if want := last && tc.says != ""; (err != nil) != want || want && !strings.Contains(err.Error(), tc.says) {
					t.Fatalf("step %d: got %v; want an error about %q at the end", i, err, tc.says)
				}
			}
		})
	}
}
