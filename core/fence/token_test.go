package fence_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
)

func TestTokenTravelsAsText(t *testing.T) {
	for _, tc := range []struct {
		token fence.Token
		text  string
	}{
		{fence.Token{Key: "stock:42", Number: 1}, "stock%3A42=1"},
		{fence.Token{Key: "a=b, c%20ä\n\xff", Number: math.MaxInt64}, "a%3Db%2C+c%2520%C3%A4%0A%FF=9223372036854775807"},
		{fence.Token{Key: strings.Repeat("%", core.MaxKeyLength), Number: 7}, strings.Repeat("%25", core.MaxKeyLength) + "=7"},
	} {
		if got := tc.token.String(); got != tc.text {
			t.Errorf("%+v is written %q; want %q", tc.token, got, tc.text)
		}
		if got, err := fence.Parse(tc.text); err != nil || got != tc.token {
			t.Errorf("%q is read as %+v, %v; want %+v", tc.text, got, err, tc.token)
		}
	}
}

func TestTextThatIsNoTokenIsRefused(t *testing.T) {
	for _, text := range []string{
		"", "=", "k", "k=", "=1", "k=0", "k=-1", "k=+1", "k=01", "k=1.0", "k=1e3", "k= 1", "k=1 ", " k=1", "k=0x1",
		"k=9223372036854775808", "k=1=1", "a:b=1", "a%3ab=1", "a%3=1", "a%zz=1", "%61=1", "ä=1",
		strings.Repeat("k", core.MaxKeyLength+1) + "=1",
	} {
		got, err := fence.Parse(text)
		mustBe(t, err, fence.ErrMalformed)
		if got != (fence.Token{}) {
			t.Errorf("%q: got %+v beside the error", text, got)
		}
		if err != nil && len(text) > 3 && strings.Contains(err.Error(), text) {
			t.Errorf("the error shows what came: %v", err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"stock%3A42=1", "k=9223372036854775807", "=", "a%zz=1", "a+b=2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		token, err := fence.Parse(s)
		if err != nil {
			mustBe(t, err, fence.ErrMalformed)
			return
		}
		if token.String() != s || token.Number <= 0 || token.Key == "" || strings.ContainsAny(s, ", \t\r\n") {
			t.Errorf("%q is read as %+v", s, token)
		}
	})
}

func FuzzTokenString(f *testing.F) {
	f.Add("stock:42", int64(1))
	f.Add("\x00, =%", int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, key string, number int64) {
		token := fence.Token{Key: key, Number: number}
		got, err := fence.Parse(token.String())
		if possible := key != "" && len(key) <= core.MaxKeyLength && number > 0; possible != (err == nil) || err == nil && got != token {
			t.Errorf("%+v is read back as %+v, %v", token, got, err)
		}
	})
}

func TestContextCarriesTheTokensOfItsLeases(t *testing.T) {
	e, d := open(t)
	ctx := fence.NewContext(t.Context(), fence.Token{Key: "came", Number: 1}, fence.Token{Key: "inner", Number: 2})
	err := e.Do(ctx, core.Policy{Key: "outer"}, func(ctx context.Context) error {
		return e.Do(ctx, core.Policy{Key: "inner"}, func(ctx context.Context) error {
			return e.Do(ctx, core.Policy{Key: "outer", Reentrant: true}, func(ctx context.Context) error {
				all := fence.All(ctx)
				var keys []string
				for _, token := range all {
					keys = append(keys, token.Key)
				}
				if want := []string{"outer", "inner", "came"}; !slices.Equal(keys, want) {
					t.Errorf("got the tokens of %q; want %q, each once", keys, want)
				}
				lease, _ := core.LeaseFrom(ctx)
				if got, err := fence.For(ctx, "outer"); err != nil || got.Number != lease.Token() {
					t.Errorf("got %+v, %v; want number %d", got, err, lease.Token())
				}
				d.Expire("test/inner")
				if got, err := fence.For(ctx, "inner"); err != nil || got.Number != 2 {
					t.Errorf("of a lease that is over: got %+v, %v; want the one that came", got, err)
				}
				return nil
			})
		})
	})
	mustBe(t, err, core.ErrLost)
}

func TestMissingTokenIsToldFromThatOfAnotherKey(t *testing.T) {
	e, d := open(t)
	_, err := fence.For(t.Context(), "k")
	mustBe(t, err, fence.ErrMissing)
	_, err = fence.For(fence.NewContext(t.Context()), "k")
	mustBe(t, err, fence.ErrMissing)
	_, err = fence.For(fence.NewContext(t.Context(), fence.Token{Key: "other", Number: 1}), "k")
	mustBe(t, err, fence.ErrOtherKey)
	err = e.Do(t.Context(), core.Policy{Key: "k"}, func(ctx context.Context) error {
		d.Expire("test/k")
		_, err := fence.For(ctx, "k")
		mustBe(t, err, fence.ErrMissing)
		_, err = fence.For(core.Detach(ctx), "k")
		mustBe(t, err, fence.ErrMissing)
		return nil
	})
	mustBe(t, err, core.ErrLost)
}

// stringKeys passes on the values of string keys only, as a gin.Context may.
type stringKeys struct{ context.Context }

func (c stringKeys) Value(key any) any {
	if _, ok := key.(string); ok {
		return c.Context.Value(key)
	}
	return nil
}

func TestTokensAreFoundThroughContextsOfStringKeys(t *testing.T) {
	came := []fence.Token{{Key: "a", Number: 1}, {Key: "b", Number: 2}}
	ctx := fence.NewContext(fence.NewContext(t.Context(), fence.Token{Key: "c", Number: 3}), came...)
	for _, ctx := range []context.Context{ctx, stringKeys{ctx}} {
		if got := fence.All(ctx); !slices.Equal(got, came) {
			t.Errorf("got %v; want %v", got, came)
		}
	}
	want := slices.Clone(came)
	came[0].Number = 9
	if got := fence.All(ctx); !slices.Equal(got, want) {
		t.Errorf("changed from outside: %v", got)
	}
}
