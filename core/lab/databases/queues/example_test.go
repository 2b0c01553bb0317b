package queues_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRefundsKeepTheProvidersLimitInADatabase runs examples/extra/refunds, which kills a worker.
func TestRefundsKeepTheProvidersLimitInADatabase(t *testing.T) {
	flags := map[string]string{"PostgreSQL": "-postgres", "MariaDB": "-mysql"}
	program := filepath.Join(t.TempDir(), "refunds")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/lockaround/lockaround/examples/extra/refunds").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	onEach(t, func(t *testing.T, d *database) {
		out, err := exec.CommandContext(t.Context(), program, flags[d.Name], d.SourceAt(d.On.Addr())).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "serial.Must             70            0          0             0      0\n") ||
			!strings.Contains(string(out), " was killed in a refund of order A, and w") {
			t.Errorf("%v:\n%s", err, out)
		}
		t.Logf("%s", out)
		if n := d.Number(t, `SELECT (SELECT count(*) FROM lockaround_queue_key) + (SELECT count(*) FROM lockaround_queue_item)`); n != 0 {
			t.Errorf("%d rows are left in the tables of queues", n)
		}
	})
}
