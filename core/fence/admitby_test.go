package fence_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core/fence"
)

// rows is what a client returns of a statement.
type rows int64

func (r rows) RowsAffected() int64 { return int64(r) }

func TestClientOfItsOwnAdmitsATokenByOneStatement(t *testing.T) {
	f, err := fence.NewSQL(fence.PostgreSQL, "")
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the connection broke")
	for name, c := range map[string]struct {
		rows rows
		err  error
		want error
	}{
		"admitted":           {1, nil, nil},
		"stale":              {0, nil, fence.ErrStale},
		"not answered":       {0, broken, broken},
		"failed after a row": {1, broken, broken},
	} {
		t.Run(name, func(t *testing.T) {
			statements := 0
			err := fence.AdmitBy(t.Context(), f, func(_ context.Context, statement string, args ...any) (rows, error) {
				statements++
				key, _ := args[0].([]byte)
				if !strings.HasPrefix(statement, `INSERT INTO "lockaround_fence"`) || len(args) != 2 || !slices.Equal(key, []byte("stock:A-1")) || args[1] != int64(1024) {
					t.Errorf("%s %v", statement, args)
				}
				return c.rows, c.err
			}, fence.Token{Key: "stock:A-1", Number: 1024})
			if !errors.Is(err, c.want) || statements != 1 {
				t.Errorf("%v by %d statements; want %v by one", err, statements, c.want)
			}
		})
	}
}

func TestClientOfItsOwnAdmitsTokensInTheirOrder(t *testing.T) {
	f, err := fence.NewSQL(fence.PostgreSQL, "")
	if err != nil {
		t.Fatal(err)
	}
	tokens := []fence.Token{{Key: "a", Number: 3}, {Key: "b", Number: 2}, {Key: "c", Number: 1}}
	var keys []string
	err = fence.AdmitBy(t.Context(), f, func(_ context.Context, _ string, args ...any) (rows, error) {
		keys = append(keys, string(args[0].([]byte)))
		return rows(2 - len(keys)), nil // the second is stale
	}, tokens...)
	if want := []string{"a", "b"}; !errors.Is(err, fence.ErrStale) || !slices.Equal(keys, want) {
		t.Errorf("%q, %v; want %q and %v", keys, err, want, fence.ErrStale)
	}
}

func TestClientOfItsOwnIsNotAskedForWhatCannotBeAdmitted(t *testing.T) {
	postgres, err := fence.NewSQL(fence.PostgreSQL, "")
	if err != nil {
		t.Fatal(err)
	}
	mysql, err := fence.NewSQL(fence.MySQL, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		fence  *fence.SQL
		tokens []fence.Token
		want   string
	}{
		"MySQL":    {mysql, []fence.Token{{Key: "k", Number: 1}}, "use Admit"},
		"no table": {nil, []fence.Token{{Key: "k", Number: 1}}, "fence.NewSQL"},
		"none":     {postgres, nil, fence.ErrMissing.Error()},
		"0":        {postgres, []fence.Token{{Key: "k"}}, fence.ErrMissing.Error()},
		"no key":   {postgres, []fence.Token{{Number: 1}}, fence.ErrMalformed.Error()},
	} {
		err := fence.AdmitBy(t.Context(), c.fence, func(context.Context, string, ...any) (rows, error) {
			t.Errorf("%s: a statement is executed", name)
			return 1, nil
		}, c.tokens...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}
