package redlock

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// mutants are bugs that the simulation has to find: in the driver, and in the modelled
// nodes what would be one in the scripts, which are compared with the model elsewhere.
var mutants = []struct{ name, file, old, bug string }{
	{
		name: "half of the nodes pass for a majority", file: "quorum.go",
		old: "return n/2 + 1", bug: "return n / 2",
	},
	{
		name: "a token counts before it is written back", file: "confirm.go",
		old: "n.voted && n.last.accepted == token, false", bug: "n.voted, false",
	},
	{
		name: "a token that was refused counts", file: "confirm.go",
		old: "case e.status == statusGranted:", bug: "case e.status != statusOver:",
	},
	{
		name: "a token is not larger than what voters have accepted", file: "confirm.go",
		old: "token = max(token, n.last.nextToken())", bug: "token = 1",
	},
	{
		name: "the deadline counts from the reply", file: "confirm.go",
		old: "driver.Deadline(sent[a.s.quorum-1], a.r.TTL)", bug: "driver.Deadline(time.Now(), a.r.TTL)",
	},
	{
		name: "a minority renews", file: "renew.go",
		old: "case t.yes >= s.quorum:", bug: "case t.yes >= 1:",
	},
	{
		name: "a renewal counts from the reply", file: "renew.go",
		old: "deadline := driver.Deadline(sent, r.TTL)", bug: "deadline := driver.Deadline(sent.Add(r.TTL/2), r.TTL)",
	},
	{
		name: "an acquisition that gives up keeps its votes", file: "acquisition.go",
		old: "n.voted, n.askAt = false, again\n", bug: "n.askAt = again\n\t\t\tcontinue\n",
	},
	{
		name: "a node accepts smaller tokens", file: "model_test.go",
		old: "(c.token > r.token || c.token == r.accepted)", bug: "(c.token > 0)",
	},
	{
		name: "a node votes for two", file: "model_test.go",
		old: "if !r.taken && (head || one == nil) {", bug: "if !r.taken || !c.wait {",
	},
	{
		name: "a node extends a lease by less than it says", file: "record_test.go",
		old: "x := now.Add(ttl); ", bug: "x := now.Add(ttl * 3 / 4); ",
	},
}

// TestSimulationCatchesMutants puts one bug after the other in and expects the
// simulation to fail.
func TestSimulationCatchesMutants(t *testing.T) {
	const enough = 4000
	if n := schedulesToRun(t); n < enough {
		t.Skipf("compiles and runs the simulation once for each bug, which takes minutes: set %s=%d", simulationSchedules, enough)
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skipf("needs the go command: %v", err)
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			file, err := filepath.Abs(m.file)
			if err != nil {
				t.Fatal(err)
			}
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(source), m.old); n != 1 {
				t.Fatalf("%s holds the text to replace %d times; it must be there once", m.file, n)
			}
			dir := t.TempDir()
			mutated := filepath.Join(dir, m.file)
			if err := os.WriteFile(mutated, []byte(strings.Replace(string(source), m.old, m.bug, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: mutated}})
			if err != nil {
				t.Fatal(err)
			}
			list := filepath.Join(dir, "overlay.json")
			if err := os.WriteFile(list, overlay, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("go", "test", "-count=1", "-vet=off", "-timeout=5m", "-overlay", list,
				"-run", "^(TestSimulation|TestEightWhoWaitAreAllServedSoon|TestOfEightWhoDoNotWaitOneIsServed)$", ".")
			cmd.Env = append(os.Environ(), simulationSchedules+"="+strconv.Itoa(enough))
			out, err := cmd.CombinedOutput()
			text := string(out)
			switch {
			case err == nil:
				t.Errorf("no schedule fails with %q in the place of %q", m.bug, m.old)
			case !strings.Contains(text, "simulation: seed ") && !strings.Contains(text, "nodes: "):
				t.Errorf("the run fails for another reason: %v\n%s", err, text[max(0, len(text)-2000):])
			default:
				for line := range strings.Lines(text) {
					if strings.Contains(line, "seed ") || strings.Contains(line, "nodes: ") {
						t.Log(strings.TrimSpace(line))
						break
					}
				}
			}
		})
	}
	t.Attr("figure-6", fmt.Sprintf("%d bugs, each caught by the simulation", len(mutants)))
}
