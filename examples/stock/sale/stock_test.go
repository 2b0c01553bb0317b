package sale

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// asProgram makes the test binary behave as the program, so that a test can
// start it as a child.
const asProgram = "STOCK_EXAMPLE_AS_PROGRAM"

// both are the stores of the program.
var both = []Store{Memory, Redis}

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		Main(both...)
	}
	goleak.VerifyTestMain(m)
}

func TestFlagsThatCannotWorkAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"fewer buyers than entrances", []string{"-buyers", "2"}, "-buyers is 2; from 3 to 10000 are possible"},
		{"too many buyers", []string{"-buyers", "10001"}, "-buyers is 10001"},
		{"no units", []string{"-units", "0"}, "-units is 0; from 1"},
		{"no process", []string{"-processes", "0"}, "-processes is 0; from 1"},
		{"processes in memory", []string{"-processes", "2"}, "-processes needs -redis"},
		{"processes with a store in memory", []string{"-processes", "2", "-store", "memory"}, "-processes needs -redis"},
		{"unknown store", []string{"-store", "disk"}, "these are possible:\n  memory\n  redis  host:port"},
		{"store without an address", []string{"-store", "redis"}, "-store redis needs -at: host:port"},
		{"address without a store", []string{"-at", "h:1"}, "say which by -store"},
		{"address of the memory", []string{"-store", "memory", "-at", "h:1"}, "has no address"},
		{"processes without buyers", []string{"-redis", "h:1", "-processes", "4", "-buyers", "10"}, "each process needs at least 3"},
		{"replica by hand", []string{"-replica"}, "-replica needs -redis or -store and -stock, and -namespace"},
		{"empty address", []string{"-redis", "a:1,,b:2"}, `-redis is "a:1,,b:2"; address 2 of the list is empty`},
		{"only a comma", []string{"-redis", ","}, "address 1 of the list is empty"},
		{"two commas at the end", []string{"-redis", "a:1,,"}, "address 2 of the list is empty"},
		{"space after a comma", []string{"-redis", "a:1, b:2"}, "write the addresses without spaces: host:port,host:port"},
		{"address without a port", []string{"-redis", "a:1,b"}, `-redis has the address "b": missing port in address; host:port is right`},
		{"address without a host", []string{"-redis", ":6379"}, "the host is missing"},
		{"address with a port by name", []string{"-redis", "a:redis"}, `"redis" is no port; from 1 to 65535`},
		{"address with port 0", []string{"-redis", "a:0"}, `"0" is no port`},
		{"URL", []string{"-redis", "redis://a:1"}, "too many colons in address; host:port is right"},
		{"address twice", []string{"-redis", "a:1,b:1,a:1"}, `the address "a:1" twice`},
		{"Sentinel without addresses", []string{"-sentinel", "m"}, "-sentinel needs -redis: the Sentinels' addresses"},
		{"Sentinel with a space", []string{"-redis", "a:1", "-sentinel", "my master"}, "the name of a master has no spaces"},
		{"argument", []string{"serve"}, `unexpected argument "serve"`},
		{"unknown flag", []string{"-unit", "3"}, "flag provided but not defined"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if status := run(t.Context(), both, tc.args, nil, &out, &errs); status != 2 {
				t.Errorf("exit status %d, want 2", status)
			}
			if !strings.Contains(errs.String(), tc.want) {
				t.Errorf("said %q, want %q in it", errs.String(), tc.want)
			}
		})
	}
}

func TestLocksSellExactlyTheStock(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		sold string
	}{
		{"as by default", nil, "100"},
		{"more units than buyers", []string{"-buyers", "20", "-units", "50"}, "20"},
		{"one unit", []string{"-buyers", "50", "-units", "1"}, "1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if status := run(t.Context(), both, tc.args, nil, &out, &errs); status != 0 {
				t.Fatalf("exit status %d: %s\n%s", status, errs.String(), out.String())
			}
			row := rowOf(t, out.String(), "with locks")
			if row[0] != tc.sold || row[1] != "0" {
				t.Errorf("sold %s, oversold %s, want %s and 0:\n%s", row[0], row[1], tc.sold, out.String())
			}
			if row := rowOf(t, out.String(), "a lock alone"); row[1] == "0" {
				t.Errorf("nothing was deducted twice without Idempotent:\n%s", out.String())
			}
			if row := rowOf(t, out.String(), "and once"); row[0] != "100" || row[1] != "0" {
				t.Errorf("%s were deducted, %s too many:\n%s", row[0], row[1], out.String())
			}
		})
	}
}

func TestTheProgramEndsWithItsStatus(t *testing.T) {
	if out, status := program(t, "-buyers", "40", "-units", "7"); status != 0 {
		t.Errorf("exit status %d, want 0:\n%s", status, out)
	}
	if out, status := program(t, "-units", "-1"); status != 2 {
		t.Errorf("exit status %d, want 2:\n%s", status, out)
	}
}

// program runs the program as a child and returns what it said and its exit
// status.
func program(t *testing.T, args ...string) (string, int) {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	// Under the race detector a program waits a second at its end.
	cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func TestVerdict(t *testing.T) {
	for _, tc := range []struct {
		name         string
		sold, left   int
		units, buyer int
		want         string
	}{
		{"exact", 100, 0, 100, 1000, ""},
		{"few buyers", 10, 90, 100, 10, ""},
		{"oversold", 103, 0, 100, 1000, "oversold by 3"},
		{"undersold", 99, 1, 100, 1000, "sold 99, 100 expected"},
		{"lost write", 10, 91, 100, 10, "91 left in the stock, 90 expected"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := verdict(options{units: tc.units, buyers: tc.buyer}, tally{Sold: tc.sold, Left: tc.left})
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want %q in it", err, tc.want)
			}
		})
	}
}

// rowOf returns the figures of the named run.
func rowOf(t *testing.T, out, name string) []string {
	t.Helper()
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strings.Fields(rest)
		}
	}
	t.Fatalf("no line %q in:\n%s", name, out)
	return nil
}
