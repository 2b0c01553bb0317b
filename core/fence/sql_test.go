package fence_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core/fence"
)

func TestNameThatIsNoneIsRefused(t *testing.T) {
	for _, tc := range []struct{ name, want string }{
		{"", ""},
		{"fence", ""},
		{"shop.fence_2", ""},
		{"Fence", ""},
		{strings.Repeat("f", 63), ""},
		{strings.Repeat("f", 64), "at most 63"},
		{"2fence", "not a digit first"},
		{"a.b.c", "3 names"},
		{"shop.", "letters"},
		{".fence", "letters"},
		{`fence"; DROP TABLE stock; --`, "letters"},
		{"fence`", "letters"},
		{"fence ", "letters"},
		{"fence\n", "letters"},
		{"fencé", "letters"},
	} {
		for _, d := range []fence.Dialect{fence.PostgreSQL, fence.MySQL} {
			f, err := fence.NewSQL(d, tc.name)
			check := func(what string, err error, none bool) {
				t.Helper()
				switch {
				case (err == nil) != (tc.want == ""), none != (err != nil):
					t.Errorf("%s %q: %v", what, tc.name, err)
				case err != nil && !strings.Contains(err.Error(), tc.want):
					t.Errorf("%q does not say %q", err, tc.want)
				}
			}
			check("fence", err, f == nil)
			if tc.name == "" {
				continue
			}
			c, err := fence.NewColumn(d, tc.name, "sku", "fence")
			check("table", err, c == nil)
		}
	}
	for _, column := range []string{"", "a.b", "a b", `a"`} {
		if _, err := fence.NewColumn(fence.PostgreSQL, "stock", column, "fence"); err == nil {
			t.Errorf("id column %q", column)
		}
		if _, err := fence.NewColumn(fence.PostgreSQL, "stock", "sku", column); err == nil {
			t.Errorf("token column %q", column)
		}
	}
	if _, err := fence.NewSQL(0, ""); err == nil || !strings.Contains(err.Error(), "fence.PostgreSQL or fence.MySQL") {
		t.Error(err)
	}
	if _, err := fence.NewColumn(3, "stock", "sku", "fence"); err == nil {
		t.Error("dialect 3")
	}
}

func FuzzTableNameCannotEndItsQuotes(f *testing.F) {
	f.Add("shop.fence")
	f.Add(`a"b`)
	f.Fuzz(func(t *testing.T, name string) {
		for _, d := range []fence.Dialect{fence.PostgreSQL, fence.MySQL} {
			c, err := fence.NewColumn(d, name, "sku", "fence")
			if err != nil {
				continue
			}
			if strings.ContainsAny(name, "\"`'; \\-\x00") {
				t.Errorf("%q was taken", name)
			}
			if s, _ := c.Statement(fence.Token{Key: "k", Number: 1}, 1, ""); len(strings.Fields(s)) != 14 {
				t.Errorf("%q makes %q", name, s)
			}
		}
	})
}

func TestZeroValuesAreRefusedWithWhatWouldBeRight(t *testing.T) {
	token := fence.Token{Key: "k", Number: 1}
	var noTable *fence.SQL
	var noColumn *fence.Column
	for want, errs := range map[string][]error{
		"fence.NewSQL": {
			noTable.Admit(t.Context(), nil, token), (&fence.SQL{}).Admit(t.Context(), nil, token),
			(&fence.SQL{}).Guard(nil).Admit(t.Context(), token), (&fence.SQL{}).Migrate(t.Context(), nil),
		},
		"fence.NewColumn": {
			noColumn.Update(t.Context(), nil, token, 1, ""), (&fence.Column{}).Update(t.Context(), nil, token, 1, ""),
		},
	} {
		for i, err := range errs {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %d: %v", want, i, err)
			}
		}
	}
}

func TestWhatIsNoTokenIsNotWritten(t *testing.T) {
	f, err := fence.NewSQL(fence.MySQL, "")
	if err != nil {
		t.Fatal(err)
	}
	c, err := fence.NewColumn(fence.MySQL, "stock", "sku", "fence")
	if err != nil {
		t.Fatal(err)
	}
	var tx *sql.Tx // would panic
	for _, tc := range []struct {
		token fence.Token
		want  error
	}{
		{fence.Token{}, fence.ErrMissing},
		{fence.Token{Key: "k"}, fence.ErrMissing},
		{fence.Token{Number: 1}, fence.ErrMalformed},
		{fence.Token{Key: "k", Number: -1}, fence.ErrMalformed},
		{fence.Token{Key: strings.Repeat("k", 1025), Number: 1}, fence.ErrMalformed},
	} {
		for _, err := range []error{f.Admit(t.Context(), tx, tc.token), c.Update(t.Context(), tx, tc.token, 1, "")} {
			if !errors.Is(err, tc.want) {
				t.Errorf("%v: %v", tc.token.Number, err)
			}
		}
	}
}
