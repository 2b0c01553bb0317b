package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// asProgram makes the test binary behave as the program, so that a test can
// start it as a child.
const asProgram = "STOCK_EXAMPLE_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

func TestFlagsThatCannotWorkAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"one buyer", []string{"-buyers", "1"}, "-buyers is 1; from 2 to 10000 are possible"},
		{"too many buyers", []string{"-buyers", "10001"}, "-buyers is 10001"},
		{"no units", []string{"-units", "0"}, "-units is 0; from 1"},
		{"no process", []string{"-processes", "0"}, "-processes is 0; from 1"},
		{"processes in memory", []string{"-processes", "2"}, "-processes needs -redis"},
		{"processes without buyers", []string{"-redis", "h:1", "-processes", "6", "-buyers", "10"}, "each process needs at least 2"},
		{"replica by hand", []string{"-replica"}, "-replica needs -redis and -namespace"},
		{"argument", []string{"serve"}, `unexpected argument "serve"`},
		{"unknown flag", []string{"-unit", "3"}, "flag provided but not defined"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if status := run(t.Context(), tc.args, nil, &out, &errs); status != 2 {
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
			if status := run(t.Context(), tc.args, nil, &out, &errs); status != 0 {
				t.Fatalf("exit status %d: %s\n%s", status, errs.String(), out.String())
			}
			row := rowOf(t, out.String(), "with locks")
			if row[0] != tc.sold || row[1] != "0" {
				t.Errorf("sold %s, oversold %s, want %s and 0:\n%s", row[0], row[1], tc.sold, out.String())
			}
		})
	}
}

func TestAStoreThatIsNotThereIsAnError(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil { // nobody listens there from here on
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if status := run(t.Context(), []string{"-redis", addr}, nil, &out, &errs); status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	if !strings.Contains(errs.String(), "fill the stock in Redis at "+addr) {
		t.Errorf("said %q", errs.String())
	}
}

func TestServeAnswersTheCurlItPrints(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r, w := io.Pipe()
	var errs bytes.Buffer
	status := make(chan int, 1)
	go func() {
		status <- run(ctx, []string{"-serve", "-buyers", "10", "-units", "5"}, nil, w, &errs)
		_ = w.Close()
	}()

	url := curledURL(t, r)
	go func() { _, _ = io.Copy(io.Discard, r) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	for i, want := range []int{200, 200, 200, 200, 200, http.StatusGone} {
		resp, err := client.Post(url, "", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != want {
			t.Errorf("purchase %d: status %d, want %d: %s", i+1, resp.StatusCode, want, body)
		}
		if want == 200 && !strings.Contains(string(body), `"token":"`) {
			t.Errorf("purchase %d: no fencing token in %s", i+1, body)
		}
	}
	stop()
	if got := <-status; got != 0 {
		t.Errorf("exit status %d after the interrupt: %s", got, errs.String())
	}
}

func TestTheProgramEndsWithItsStatus(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := func(args ...string) (string, int) {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(os.Environ(), asProgram+"=1")
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, status := child("-buyers", "40", "-units", "7"); status != 0 {
		t.Errorf("exit status %d, want 0:\n%s", status, out)
	}
	if out, status := child("-units", "-1"); status != 2 {
		t.Errorf("exit status %d, want 2:\n%s", status, out)
	}
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

// curledURL reads up to the printed curl command and returns its URL.
func curledURL(t *testing.T, r io.Reader) string {
	t.Helper()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if _, url, ok := strings.Cut(lines.Text(), "curl -i -X POST "); ok {
			return url
		}
	}
	t.Fatal("no curl command printed")
	return ""
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
