package template

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// longest is how long a key may be.
const longest = 1024

func compile[T any](text string, resolve Resolver[T]) (*Template[T], *Fault) {
	return Compile("Key", text, longest, true, resolve)
}

// values resolves {0}, {1}, … and {a}, {b}, … to the elements of a slice.
func values(name string) (Accessor[[]string], error) {
	i := strings.Index("0123456789", name)
	if i < 0 {
		i = strings.Index("abcdefghij", name)
	}
	if i < 0 || len(name) != 1 {
		return nil, fmt.Errorf("no value %s; use a to j", name)
	}
	return func(dst []byte, src []string) ([]byte, error) {
		if i >= len(src) {
			return dst, ErrMissing
		}
		return append(dst, src[i]...), nil
	}, nil
}

func TestTemplateRendersTextAndValues(t *testing.T) {
	for _, tc := range []struct {
		template string
		values   []string
		want     string
	}{
		{"report:daily", nil, "report:daily"},
		{"stock:{a}", []string{"A-1"}, "stock:A-1"},
		{"{a}", []string{"A-1"}, "A-1"},
		{"{a}:stock", []string{"A-1"}, "A-1:stock"},
		{"t/{a}/w/{b}/end", []string{"x", "y"}, "t/x/w/y/end"},
		{"{b}:{a}:{b}", []string{"x", "y"}, "y:x:y"},
		{"заказ:{a}", []string{"7"}, "заказ:7"},
		{"k:{a}", []string{"a:b c/é%"}, "k:a%3Ab%20c%2F%C3%A9%25"},
		{"k:{a}", []string{"{b}"}, "k:%7Bb%7D"},
		{"k:{a}", []string{"\x00\xff"}, "k:%00%FF"},
		{"k:{a}", []string{"AZaz09._~-"}, "k:AZaz09._~-"},
	} {
		tpl, fault := compile(tc.template, values)
		if fault != nil {
			t.Errorf("%q: %v", tc.template, fault)
			continue
		}
		if got, fault := tpl.Render(tc.values); fault != nil || got != tc.want {
			t.Errorf("%q of %q = %q, %v; want %q", tc.template, tc.values, got, fault, tc.want)
		}
	}
}

func TestPlainTextThatLooksLikeAnotherSyntaxIsLegal(t *testing.T) {
	for _, text := range []string{"100%", "%3A:{a}", "sale%summer", "50%d0", "$:{a}", "a#b:{a}", "cash$", "%%", "%-s"} {
		if _, fault := compile(text, values); fault != nil {
			t.Errorf("%q: %v", text, fault)
		}
	}
}

func TestMalformedTemplateIsRefusedWithItsPlaceAndTheCure(t *testing.T) {
	for _, tc := range []struct {
		template string
		want     []string
	}{
		{"stock:{a", []string{"column 7", "never closed", "{name}"}},
		{"stock:{", []string{"column 7", "never closed"}},
		{"stock:a}", []string{"column 8", "'}' without a '{'", "{name}"}},
		{"stock:{a}}", []string{"column 10", "'}' without a '{'"}},
		{"stock:{}", []string{"column 7", "names nothing"}},
		{"stock:{{a}}", []string{"column 7", "another template language", "{name}"}},
		{"stock:{{.a}}", []string{"column 7", "without a dot"}},
		{"stock:${a}", []string{"column 7", "$ before '{'", "{name}"}},
		{"stock:#{a}", []string{"column 7", "# before '{'"}},
		{"stock:%s", []string{"column 7", "%s", "{name}"}},
		{"é:%+v:{a}", []string{"column 3", "%+v"}},
		{"{a}:%d", []string{"column 5", "%d"}},
		{"stock:{a{b}}", []string{"column 9", "do not nest"}},
		{"stock:{ a }", []string{"column 8", "white space"}},
		{"stock:{a\tb}", []string{"column 9", "white space"}},
		{"é:{a", []string{"column 3"}},
		{"{a}{b}", []string{"column 4", "{a}", "{b}", "such as ':'"}},
		{"{a}-{b}", []string{"column 5", "separates"}},
		{"{a}%3A{b}", []string{"separates"}},
		{"{a}:{b}x{c}", []string{"column 9", "{b}", "{c}"}},
		{"{a}:{nope}", []string{"column 5", "{nope}", "use a to j"}},
		{strings.Repeat("x", longest) + "{a}", []string{"1025 bytes or more", "at most 1024"}},
	} {
		_, fault := compile(tc.template, values)
		if fault == nil {
			t.Errorf("%q was accepted", tc.template)
			continue
		}
		if !strings.HasPrefix(fault.Detail, "Key") || fault.Placeholder != "" {
			t.Errorf("%q: %+v does not begin with its place, or blames a value", tc.template, fault)
		}
		for _, want := range tc.want {
			if !strings.Contains(fault.Error(), want) {
				t.Errorf("%q: %q does not say %q", tc.template, fault, want)
			}
		}
	}
}

func TestResolverIsAskedOncePerPlaceholderAndNotPerCall(t *testing.T) {
	var asked []string
	tpl, fault := compile("{a}:{b}", func(name string) (Accessor[[]string], error) {
		asked = append(asked, name)
		return values(name)
	})
	if fault != nil {
		t.Fatal(fault)
	}
	for range 3 {
		if _, fault := tpl.Render([]string{"x", "y"}); fault != nil {
			t.Fatal(fault)
		}
	}
	if !slices.Equal(asked, []string{"a", "b"}) {
		t.Errorf("asked for %q", asked)
	}
}

func TestResolverThatReturnsNothingIsRefused(t *testing.T) {
	_, fault := compile("{a}", func(string) (Accessor[string], error) { return nil, nil })
	if fault == nil || !strings.Contains(fault.Detail, "column 1: {a}: the resolver returned neither") {
		t.Errorf("got %v", fault)
	}
}

func TestValueThatCannotBeReadMakesNoKey(t *testing.T) {
	secret := errors.New("secret-value")
	for _, tc := range []struct {
		name string
		err  error
		want error
	}{
		{"missing", ErrMissing, ErrMissing},
		{"empty", nil, ErrMissing},
		{"repeated", fmt.Errorf("secret-value, secret-value: %w", ErrRepeated), ErrRepeated},
		{"invalid", fmt.Errorf("secret-value: %w", ErrInvalid), ErrInvalid},
		{"too large", fmt.Errorf("secret-value: %w", ErrTooLarge), ErrTooLarge},
		{"of another kind", secret, secret},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tpl, fault := compile("k:{a}", func(string) (Accessor[string], error) {
				return func(dst []byte, _ string) ([]byte, error) { return dst, tc.err }, nil
			})
			if fault != nil {
				t.Fatal(fault)
			}
			key, fault := tpl.Render("")
			if key != "" || !errors.Is(fault, tc.want) {
				t.Fatalf("got %q, %v", key, fault)
			}
			if fault.Placeholder != "a" || fault.Detail == "" {
				t.Errorf("got %+v", fault)
			}
			if strings.Contains(fault.Error(), "secret") {
				t.Errorf("%q shows what the accessor quoted", fault)
			}
		})
	}
}

func TestEscapeKeepsShortValuesReadableAndHashesTheTailOfLongOnes(t *testing.T) {
	for _, tc := range []struct{ value, want string }{
		{"", ""},
		{"A-1", "A-1"},
		{"a:b", "a%3Ab"},
		{strings.Repeat("a", 200), strings.Repeat("a", 200)},
		{strings.Repeat(":", 66) + "aa", strings.Repeat("%3A", 66) + "aa"},
	} {
		if got := Escape(tc.value); got != tc.want {
			t.Errorf("Escape(%q) = %q, want %q", tc.value, got, tc.want)
		}
	}
	for _, tc := range []struct{ value, head string }{
		{strings.Repeat("a", 201), strings.Repeat("a", 134)},
		{strings.Repeat(":", 67), strings.Repeat("%3A", 44)},
		{strings.Repeat("a", 133) + strings.Repeat(":", 100), strings.Repeat("a", 133)},
		{strings.Repeat("a", 131) + strings.Repeat(":", 100), strings.Repeat("a", 131) + "%3A"},
	} {
		got := Escape(tc.value)
		if head, sum, ok := strings.Cut(got, hashMark); !ok || head != tc.head || sum != fmt.Sprintf("%x", sha256.Sum256([]byte(tc.value))) {
			t.Errorf("Escape(%q) = %q, want %q, a mark and the hash of the value", tc.value, got, tc.head)
		}
	}
}

func TestValuesThatDifferOnlyInTheirTailStayApart(t *testing.T) {
	head := strings.Repeat("x", 300)
	seen := map[string]string{}
	for _, v := range []string{head, head + "1", head + "2", head + head, Escape(head), head[:134], head[:200], strings.Repeat(":", 300), strings.Repeat(":", 301)} {
		got := Escape(v)
		if len(got) > maxPart {
			t.Errorf("%d bytes", len(got))
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q both render %q", v, other, got)
		}
		seen[got] = v
	}
}

func TestRenderAllocatesTheKeyOnly(t *testing.T) {
	tpl, fault := compile("t:{a}:stock:{b}", values)
	if fault != nil {
		t.Fatal(fault)
	}
	src := []string{"tenant one", strings.Repeat("é", 300)}
	if n := fewestAllocs(func() { _, _ = tpl.Render(src) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

func TestAccessorThatReturnsASliceOfItsOwnKeepsIt(t *testing.T) {
	tpl, fault := compile("k:{a}:{b}", func(string) (Accessor[[]byte], error) {
		return func(_ []byte, src []byte) ([]byte, error) { return src, nil }, nil
	})
	if fault != nil {
		t.Fatal(fault)
	}
	other, fault := compile("{a}", values)
	if fault != nil {
		t.Fatal(fault)
	}
	src := []byte("theirs")
	for range 8 {
		if key, fault := tpl.Render(src); fault != nil || key != "k:theirs:theirs" {
			t.Fatalf("got %q, %v", key, fault)
		}
		if _, fault := other.Render([]string{"overwritten"}); fault != nil {
			t.Fatal(fault)
		}
	}
	if string(src) != "theirs" {
		t.Errorf("the slice now holds %q", src)
	}
}

// fewestAllocs is how often f allocates when the pool of buffers holds one: a
// garbage collection may empty it, and the race detector does at random.
func fewestAllocs(f func()) float64 {
	fewest := testing.AllocsPerRun(1, f)
	for range 50 {
		fewest = min(fewest, testing.AllocsPerRun(1, f))
	}
	return fewest
}

func TestKeyWithoutPlaceholdersAllocatesNothing(t *testing.T) {
	tpl, fault := compile("report:daily", values)
	if fault != nil {
		t.Fatal(fault)
	}
	if n := testing.AllocsPerRun(200, func() { _, _ = tpl.Render(nil) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkTemplateRender(b *testing.B) {
	type order struct {
		Tenant string
		Item   *struct{ SKU string }
		Count  int
	}
	src := order{Tenant: "shop:eu", Item: &struct{ SKU string }{"A-1"}, Count: 2}
	tpl, fault := compile("{Tenant}/stock/{Item.SKU}/{Count}", Fields[order])
	if fault != nil {
		b.Fatal(fault)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, fault := tpl.Render(src); fault != nil {
			b.Fatal(fault)
		}
	}
}

func BenchmarkEscape(b *testing.B) {
	for _, value := range []string{"A-1", "a:b/c d", strings.Repeat("long ", 100)} {
		b.Run(fmt.Sprint(len(value)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Escape(value)
			}
		})
	}
}
