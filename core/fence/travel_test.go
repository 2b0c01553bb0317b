package fence_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core/fence"
)

func tokens(n int) []fence.Token {
	all := make([]fence.Token, n)
	for i := range all {
		all[i] = fence.Token{Key: "k," + strconv.Itoa(i), Number: int64(i + 1)}
	}
	return all
}

func TestValuesAreReadBackAlsoWhenJoined(t *testing.T) {
	want := tokens(fence.MaxTokens)
	values, err := fence.Values(fence.NewContext(t.Context(), want...))
	if err != nil {
		t.Fatal(err)
	}
	for name, vs := range map[string][]string{
		"apart":           values,
		"joined":          {strings.Join(values, ",")},
		"with blanks":     {strings.Join(values, " ,\t")},
		"halves":          {strings.Join(values[:9], ", "), strings.Join(values[9:], ", ")},
		"with nothing in": append([]string{"", " ", ",,"}, values...),
	} {
		if got, err := fence.ParseValues(vs); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	for _, none := range [][]string{nil, {""}} {
		if got, err := fence.ParseValues(none); err != nil || len(got) > 0 {
			t.Errorf("%q: got %v, %v; want none", none, got, err)
		}
	}
	if got, err := fence.Values(t.Context()); err != nil || len(got) > 0 {
		t.Errorf("without tokens there are values: %q, %v", got, err)
	}
}

func TestValuesThatCannotBeBelievedAreRefused(t *testing.T) {
	var many []string
	for _, token := range tokens(fence.MaxTokens + 1) {
		many = append(many, token.String())
	}
	for name, vs := range map[string][]string{
		"no token":                {"k"},
		"one of them no token":    {"a=1, b"},
		"one key with two tokens": {"a=1", "a=2"},
		"one token twice":         {"a=1,a=1"},
		"too many":                many,
	} {
		if got, err := fence.ParseValues(vs); !errors.Is(err, fence.ErrMalformed) || got != nil {
			t.Errorf("%s: got %v, %v; want ErrMalformed", name, got, err)
		}
	}
	if got, err := fence.Values(fence.NewContext(t.Context(), tokens(fence.MaxTokens+1)...)); err == nil || got != nil {
		t.Errorf("more than can travel: got %d values, %v", len(got), err)
	}
}

func FuzzParseValues(f *testing.F) {
	f.Add("a=1, b=2")
	f.Add(",,a=1,a=1")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := fence.ParseValues([]string{s})
		if err != nil {
			mustBe(t, err, fence.ErrMalformed)
			return
		}
		values, err := fence.Values(fence.NewContext(t.Context(), got...))
		if err != nil {
			t.Fatal(err)
		}
		if again, err := fence.ParseValues(values); err != nil || !slices.Equal(again, got) {
			t.Errorf("%q is read as %v and sent on as %q, which is %v, %v", s, got, values, again, err)
		}
	})
}

type guardFunc func(context.Context, fence.Token) error

func (f guardFunc) Admit(ctx context.Context, t fence.Token) error { return f(ctx, t) }

func TestCheckTellsARefusalFromAGuardThatFails(t *testing.T) {
	down := errors.New("10.0.0.7:6379 is down")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		name string
		ctx  context.Context
		says error
		key  string
		want error
		not  error
	}{
		{name: "admitted", key: "k,0"},
		{name: "other key", key: "x", want: fence.ErrOtherKey},
		{name: "stale", key: "k,0", says: fence.ErrStale, want: fence.ErrStale, not: fence.ErrUndecided},
		{name: "guard down", key: "k,0", says: down, want: fence.ErrUndecided, not: fence.ErrStale},
		{name: "guard too slow", key: "k,0", says: context.DeadlineExceeded, want: fence.ErrUndecided},
		{name: "cancelled", ctx: cancelled, key: "k,0", says: down, want: context.Canceled, not: fence.ErrUndecided},
		{name: "cancelled and stale", ctx: cancelled, key: "k,0", says: fence.ErrStale, want: fence.ErrStale},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx := tc.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			g := guardFunc(func(_ context.Context, got fence.Token) error {
				if got != tokens(1)[0] {
					t.Errorf("asked for %v", got)
				}
				return tc.says
			})
			err := fence.Check(ctx, g, tokens(1), tc.key)
			mustBe(t, err, tc.want)
			if tc.says != nil && !errors.Is(err, tc.says) {
				t.Errorf("%v does not wrap %v", err, tc.says)
			}
			if tc.not != nil && errors.Is(err, tc.not) {
				t.Errorf("%v is around %v too", err, tc.not)
			}
			if err != nil && strings.Contains(err.Error(), "10.0.0.7") {
				t.Errorf("what the store said is shown: %v", err)
			}
		})
	}
	mustBe(t, fence.Check(t.Context(), &fence.Memory{}, nil, "k"), fence.ErrMissing)
}
