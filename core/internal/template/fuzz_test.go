package template

import (
	"net/url"
	"slices"
	"strings"
	"testing"
)

// FuzzTemplate: any text compiles or is refused; what compiles is what was
// written.
func FuzzTemplate(f *testing.F) {
	for _, s := range []string{
		"", "a", "{a}", "x:{a}/{b}", "{", "}", "{}", "{{a}}", "{a}{b}", "{a}-{b}", "é{ä}\xff{b}", "{a b}", "{a:int}", "{:int}", "{a:b:time}", "{a:}",
		"{a[].b}", "{a[]}:{a[].b:int}", "{[]}", "{a[]}:{b[]}", "{a[].b[]}", "{a[]b}", "{a.[]}", "[]{a}", "{a[0]}", "{a[].}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parts, err := parse(text)
		if err != nil {
			if !strings.Contains(err.Error(), "column ") {
				t.Errorf("%q: %q has no place", text, err)
			}
			return
		}
		var written strings.Builder
		for i, p := range parts {
			written.WriteString(p.literal)
			if last := i == len(parts)-1; last != (p.name == "") {
				t.Fatalf("%q: part %d of %d is named %q", text, i, len(parts), p.name)
			} else if !last {
				written.WriteString("{" + p.name)
				if p.kind != "" {
					written.WriteString(":" + p.kind)
				}
				written.WriteString("}")
			}
		}
		if written.String() != text {
			t.Errorf("%q became %q", text, &written)
		}
		lists := map[string]bool{}
		for _, p := range parts {
			if p.ofList {
				lists[p.list] = true
			}
			if marks := strings.Count(p.name, listMark); marks > 1 || (marks == 1) != p.ofList {
				t.Errorf("%q: {%s} has %d marks", text, p.name, marks)
			}
		}
		if len(lists) > 1 || HasList(text) != (len(lists) == 1) {
			t.Errorf("%q has the lists %v; HasList says %v", text, lists, HasList(text))
		}
	})
}

// takeApart finds the escaped values in a key that parts made.
func takeApart(t *testing.T, parts []part, key string) (escaped []string) {
	t.Helper()
	rest := strings.TrimPrefix(key, parts[0].literal)
	for _, next := range parts[1:] {
		first := func(s string) int {
			return strings.IndexFunc(s, func(r rune) bool { return r > 127 || separates(byte(r)) })
		}
		end := len(rest) - len(next.literal)
		if next.name != "" {
			end = first(rest) - first(next.literal)
		}
		if end < 0 || !strings.HasPrefix(rest[end:], next.literal) {
			t.Fatalf("%q: no %q in %q", key, next.literal, rest)
		}
		escaped, rest = append(escaped, rest[:end]), rest[end+len(next.literal):]
	}
	return escaped
}

// FuzzKeysStayApart: under one template, different values make different keys,
// since each value can be found in the key.
func FuzzKeysStayApart(f *testing.F) {
	long := strings.Repeat("x", 250)
	f.Add("t:{a}:{b}", "a:b", "c", "a", "b:c")
	f.Add("{a}/{b}", "a", "%2F", "a%2F", "")
	f.Add("{a}:-{b}", "a:", "-", "a", ":--")
	f.Add("{a} {b}", long+"1", "x", long+"2", "x")
	f.Add("{a}%3A:{b}", "1", "3A", "1%3A", "A")
	f.Add("{a}-{b}", "x-y", "z", "x", "y-z")
	f.Add("{a}{b}", "x", "yz", "xy", "z")
	f.Add("{b}:{a}", Escape(long), "x", long, "x")
	element := func(name string) int { return min(1, max(0, strings.Compare(name, "a"))) }
	f.Fuzz(func(t *testing.T, text, a1, b1, a2, b2 string) {
		tpl, fault := compile(text, func(name string) (Accessor[[]string], error) {
			return func(dst []byte, src []string) ([]byte, error) { return append(dst, src[element(name)]...), nil }, nil
		})
		if fault != nil || tpl.HasList() {
			return
		}
		one, two := []string{a1, b1}, []string{a2, b2}
		key1, fault1 := tpl.Render(one)
		key2, fault2 := tpl.Render(two)
		if fault1 != nil || fault2 != nil {
			return
		}
		for _, p := range tpl.parts {
			if p.kind != "" {
				return // FuzzKinds has them
			}
		}
		for i, value := range takeApart(t, tpl.parts, key1) {
			if want := Escape(one[element(tpl.parts[i].name)]); value != want {
				t.Errorf("%q: %q renders %q, in which part %d is %q", text, one, key1, i, value)
			}
		}
		same := true
		for _, p := range tpl.parts[:len(tpl.accessors)] {
			same = same && one[element(p.name)] == two[element(p.name)]
		}
		if (key1 == key2) != same {
			t.Errorf("%q: %q renders %q and %q renders %q", text, one, key1, two, key2)
		}
	})
}

// FuzzList: the keys of a list are those of its elements one by one, and there are none if one
// element has none, or if what came is no list.
func FuzzList(f *testing.F) {
	f.Add("k:{a[].x}:{b}", "a:b", "", "c")
	f.Add("{a[]}:{a[].y:lower}", "A", "a", "ß")
	f.Add("{a[]:int}", "01", "1", "x")
	f.Add("[]{a[]}", "1", "2", "3")
	f.Fuzz(func(t *testing.T, text, first, second, third string) {
		values := []string{first, second, third}
		list, fault := compile(text, func(name string) (Accessor[[]string], error) {
			return func(dst []byte, src []string) ([]byte, error) {
				if !strings.Contains(name, listMark) {
					return append(dst, first...), nil
				}
				return AppendList(dst, len(src), func(dst []byte, i int) ([]byte, error) { return append(dst, src[i]...), nil })
			}, nil
		})
		if fault != nil || !list.HasList() {
			return
		}
		var text1 strings.Builder // the same for one element
		for _, p := range list.parts {
			text1.WriteString(p.literal)
			if p.name != "" {
				text1.WriteString("{" + map[bool]string{true: "element", false: "scalar"}[p.ofList])
				if p.kind != "" {
					text1.WriteString(":" + p.kind)
				}
				text1.WriteString("}")
			}
		}
		single, fault := compile(text1.String(), func(name string) (Accessor[string], error) {
			return func(dst []byte, src string) ([]byte, error) {
				if name == "scalar" {
					src = first
				}
				return append(dst, src...), nil
			}, nil
		})
		if fault != nil {
			t.Fatalf("%q as %q: %v", text, &text1, fault)
		}
		var want []string
		for _, v := range values {
			key, fault := single.Render(v)
			if fault != nil {
				want = nil
				break
			}
			want = append(want, key)
		}
		var got []string
		fault = list.RenderAll(values, func(key string) bool { got = append(got, key); return true })
		if (fault == nil) != (want != nil) || !slices.Equal(got, want) {
			t.Errorf("%q of %q is %q, %v; want %q", text, values, got, fault, want)
		}
	})
}

// FuzzElements: whatever an accessor appends for a list, it is taken apart as AppendList has put
// it together, or refused.
func FuzzElements(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01a\x00\x00\x00\x02bc"))
	f.Add([]byte("\xff\xff\xff\xffa"))
	tpl, fault := compile("{a[]}", func(string) (Accessor[[]byte], error) {
		return func(_, src []byte) ([]byte, error) { return src, nil }, nil
	})
	if fault != nil {
		f.Fatal(fault)
	}
	f.Fuzz(func(t *testing.T, list []byte) {
		values, err := tpl.elements(0, list)
		if err != nil {
			return
		}
		again, err := AppendList(nil, len(values), func(dst []byte, i int) ([]byte, error) { return append(dst, values[i]...), nil })
		if len(list) > 0 && (err != nil || !slices.Equal(again, list)) && len(values) <= maxElements {
			t.Errorf("%q: %q, %v", list, again, err)
		}
	})
}

// FuzzEscape: what a value renders is short, holds no separator, can be read
// back if it is not hashed, and is the same in Escape and in a placeholder.
func FuzzEscape(f *testing.F) {
	for _, s := range []string{"", "a", "a:b", "%", "%~", "\x00\xff", strings.Repeat("a", 200), strings.Repeat("é", 100), strings.Repeat("a", 133) + ":::" + strings.Repeat("b", 100)} {
		f.Add(s)
	}
	tpl, fault := compile("{.}", Fields[string])
	if fault != nil {
		f.Fatal(fault)
	}
	f.Fuzz(func(t *testing.T, value string) {
		got := Escape(value)
		if len(got) > maxPart {
			t.Errorf("%q renders %d bytes", value, len(got))
		}
		for i := range len(got) {
			if separates(got[i]) {
				t.Errorf("%q renders %q, which holds a separator", value, got)
			}
		}
		if !strings.Contains(got, hashMark) {
			if back, err := url.PathUnescape(got); err != nil || back != value {
				t.Errorf("%q renders %q, which reads back as %q, %v", value, got, back, err)
			}
		}
		if key, fault := tpl.Render(value); value != "" && (fault != nil || key != got) {
			t.Errorf("%q renders %q in a template, %v, and %q in Escape", value, key, fault, got)
		}
	})
}
