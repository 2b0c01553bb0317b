package core_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

func TestKeysThatAreLockedUnderTwoNamesAreWarnedOfOnce(t *testing.T) {
	for _, tc := range []struct {
		name     string
		policies []core.Policy
		want     string // the names; empty without a warning
	}{
		{"one template", []core.Policy{{Key: "stock:{sku}"}, {Key: "stock:{sku}", Mode: core.Shared}}, ""},
		{"three sources", []core.Policy{{Key: "stock:{path.sku}"}, {Key: "stock:{sku}"}, {Key: "stock:{SKU}"}}, `"[stock:{path.sku} stock:{sku}]"`},
		{"a kind", []core.Policy{{Key: "order:{id}"}, {Key: "order:{id:int}"}}, `"[order:{id} order:{id:int}]"`},
		{"several keys", []core.Policy{{Keys: []string{"a:{x}", "b:{y}"}}, {Keys: []string{"a:{X}", "b:{Y}"}}}, `"[a:{x}+b:{y} a:{X}+b:{Y}]"`},
		{"other keys", []core.Policy{{Key: "stock:{sku}"}, {Key: "stocks:{sku}"}, {Key: "stock:{sku}:{sku}"}, {Key: "stock"}}, ""},
		{"one Name for all", []core.Policy{{Key: "stock:{path.sku}", Name: "stock"}, {Key: "stock:{sku}", Name: "stock"}}, ""},
		{"names that were chosen", []core.Policy{{Key: "stock:{path.sku}", Name: "sell"}, {Key: "stock:{sku}", Name: "count"}}, ""},
		{"one name that was chosen", []core.Policy{{Key: "stock:{path.sku}", Name: "sell"}, {Key: "stock:{sku}"}}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log bytes.Buffer
			e := open(t, memlock.New(), core.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			for range 2 {
				for _, p := range tc.policies {
					if _, err := core.NewGuard(e, p, anyName); err != nil {
						t.Fatal(err)
					}
				}
			}
			if got := strings.Count(log.String(), "locked under two names"); got > 1 || (got == 1) != (tc.want != "") || !strings.Contains(log.String(), tc.want) {
				t.Errorf("warned %d times: %s\nwant %s", got, &log, tc.want)
			}
		})
	}
}

// anyName resolves every name.
func anyName(name string) (core.Accessor[int], error) {
	return func(dst []byte, n int) ([]byte, error) { return fmt.Append(dst, name, n), nil }, nil
}

// The key may be what a customer is called: an error does not say it, and says what is missing.
func TestErrorOfALiteralKeySaysItsNameOrThatItHasNone(t *testing.T) {
	const key = "customer:s3cret"
	d := memlock.New()
	e, other := open(t, d), open(t, d)
	held := mustAcquire(t, other, core.Policy{Key: key})
	for name, want := range map[string]string{
		"":      "lock acquire of a literal key without a Policy.Name: lock is busy (memory)",
		"stock": `lock acquire "stock": lock is busy (memory)`,
	} {
		err := e.Do(t.Context(), core.Policy{Key: key, Name: name}, doNothing)
		if mustBe(t, err, core.ErrBusy); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		err = e.Do(t.Context(), core.Policy{Keys: []string{"customer:a", key}, Name: name}, doNothing)
		if mustBe(t, err, core.ErrBusy); err == nil || err.Error() != want {
			t.Errorf("of several keys: got %v, want %s", err, want)
		}
	}
	mustBe(t, held.Release(t.Context()), nil)
	err := held.Release(t.Context())
	if want := "lock release of a literal key without a Policy.Name: lock not held: the lease was released before; release it once, when nothing uses it any more (memory)"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
