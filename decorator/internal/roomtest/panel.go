package roomtest

import (
	"fmt"
	"testing"

	"github.com/lockaround/lockaround/core"
)

// ExpectCells expects cells of the first row of a panel: a column, what it has, and so on.
func ExpectCells(t *testing.T, p core.Paneler, want ...string) {
	t.Helper()
	panel := p.Panel(t.Context())
	if panel.Err != nil || panel.Title == "" || len(panel.Rows) == 0 {
		t.Fatalf("the panel is %+v", panel)
	}
	for _, r := range panel.Rows {
		if len(r) != len(panel.Columns) {
			t.Errorf("a row has %d cells for %d columns", len(r), len(panel.Columns))
		}
	}
	got := map[string]string{}
	for i, c := range panel.Columns {
		got[c] = fmt.Sprint(panel.Rows[0][i])
	}
	for i := 0; i < len(want); i += 2 {
		if got[want[i]] != want[i+1] {
			t.Errorf("%s is %q, want %q; the row is %v", want[i], got[want[i]], want[i+1], got)
		}
	}
}
