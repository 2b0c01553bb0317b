package fence_test

import (
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
)

func TestMigrateMayBeRepeatedAndRunByManyAtOnce(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		f, err := fence.NewSQL(d.dialect, "again")
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 2 {
					if err := f.Migrate(t.Context(), d.DB); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	})
}

func TestSmallerTokenIsRefusedAndAnEqualOnePasses(t *testing.T) {
	eachLevel(t, func(t *testing.T, d *database, o *sql.TxOptions) {
		key := o.Isolation.String()
		for _, step := range []struct {
			key    string
			number int64
			want   error
		}{
			{key, 5, nil},
			{key, 5, nil},
			{key, 4, fence.ErrStale},
			{key, 1 << 62, nil},
			{key, 6, fence.ErrStale},
			{key + "2", 1, nil},
			{key, 1 << 62, nil},
			{key, 0, fence.ErrMissing},
			{key, -1, fence.ErrMalformed},
			{"", 7, fence.ErrMalformed},
		} {
			if err := d.admit(t, o, fence.Token{Key: step.key, Number: step.number}); !errors.Is(err, step.want) {
				t.Fatalf("token %d: %v, want %v", step.number, err, step.want)
			}
		}
		n := d.Number(t, `SELECT count(*) FROM lockaround_fence`)
		if err := d.admit(t, o, fence.Token{Key: key, Number: 8}); !errors.Is(err, fence.ErrStale) || d.Number(t, `SELECT count(*) FROM lockaround_fence`) != n {
			t.Errorf("a refused token left something: %v", err)
		}
	})
}

func TestTokenOfATransactionThatIsRolledBackIsForgotten(t *testing.T) {
	eachLevel(t, func(t *testing.T, d *database, o *sql.TxOptions) {
		for _, first := range []bool{true, false} {
			tx := d.begin(t, o)
			if err := d.fence.Admit(t.Context(), tx, fence.Token{Key: o.Isolation.String(), Number: 9}); err != nil {
				t.Fatal(err)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if err := d.admit(t, o, fence.Token{Key: o.Isolation.String(), Number: 3}); err != nil {
				t.Errorf("first use %t: %v", first, err)
			}
		}
	})
}

func TestKeysOfAnyBytesAreKeptApart(t *testing.T) {
	keys := []string{
		"a", "A", "a ", "ä", "a\u0308", "\x00", "\xff\xfe", "'; DROP TABLE lockaround_fence; --", `\`, "a%2F",
		strings.Repeat("x", core.MaxKeyLength), strings.Repeat("x", core.MaxKeyLength-1) + "\xff",
	}
	each(t, func(t *testing.T, d *database) {
		for i, key := range keys {
			if err := d.admit(t, nil, fence.Token{Key: key, Number: int64(100 - i)}); err != nil {
				t.Errorf("key %q: %v", key, err)
			}
		}
		if n := d.Number(t, `SELECT count(*) FROM lockaround_fence`); n != int64(len(keys)) {
			t.Errorf("%d rows for %d keys", n, len(keys))
		}
		if err := d.admit(t, nil, fence.Token{Key: strings.Repeat("x", core.MaxKeyLength+1), Number: 1}); !errors.Is(err, fence.ErrMalformed) {
			t.Errorf("a key that is too long: %v", err)
		}
	})
}

func TestRowsThatAreOldEnoughMayBeDeleted(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		for _, key := range []string{"old", "used", "new"} {
			if err := d.admit(t, nil, fence.Token{Key: key, Number: 5}); err != nil {
				t.Fatal(err)
			}
		}
		age := `UPDATE lockaround_fence SET written_at = now() - interval '91 days' WHERE lock_key IN ('old', 'used')`
		prune := `DELETE FROM lockaround_fence WHERE written_at < now() - interval '90 days'`
		if d.dialect == fence.MySQL {
			age = `UPDATE lockaround_fence SET written_at = CURRENT_TIMESTAMP - INTERVAL 91 DAY WHERE lock_key IN ('old', 'used')`
			prune = `DELETE FROM lockaround_fence WHERE written_at < CURRENT_TIMESTAMP - INTERVAL 90 DAY`
		}
		d.Must(t, age)
		tx := d.begin(t, nil)
		if err := d.fence.Admit(t.Context(), tx, fence.Token{Key: "used", Number: 5}); err != nil { // its holder lives
			t.Fatal(err)
		}
		pruned := late(func() error { _, err := d.ExecContext(t.Context(), prune); return err })
		d.waiting(t)
		if err := errors.Join(tx.Commit(), <-pruned); err != nil {
			t.Fatal(err)
		}
		var refused []string
		for _, key := range []string{"old", "used", "new"} {
			if errors.Is(d.admit(t, nil, fence.Token{Key: key, Number: 4}), fence.ErrStale) {
				refused = append(refused, key)
			}
		}
		if !slices.Equal(refused, []string{"used", "new"}) {
			t.Errorf("refused %q", refused)
		}
	})
}
