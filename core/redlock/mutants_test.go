package redlock

import (
	"fmt"
	"testing"

	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/internal/testkit"
)

// mutants are bugs that the simulation has to find, or the named test of a schedule that it seldom
// makes: in the driver, and in the modelled nodes what would be one in the scripts, which are
// compared with the model elsewhere.
var mutants = []struct{ name, by, file, old, bug string }{
	{
		name: "half of the nodes pass for a majority", file: "confirm.go",
		old: "return n/2 + 1", bug: "return n / 2",
	},
	{
		name: "a token counts before it is written back", by: "TestTokenThatMayBeGivenBackIsNotTakenUp", file: "confirm.go",
		old: "n.accepted = n.voted && n.last.accepted == token;", bug: "n.accepted = n.voted;",
	},
	{
		name: "a token that was refused counts", file: "confirm.go",
		old: "n.accepted || e.status == statusGranted", bug: "n.accepted || e.status != statusOver",
	},
	{
		name: "a token is proposed before the nodes have answered about another", by: "TestTokenIsLargerThanThoseOfVotersWhateverTheClocksShow", file: "confirm.go",
		old: "for a.count((*nodeState).hasAccepted) < a.s.quorum && (", bug: "for a.count((*nodeState).hasAccepted) < 1 && (",
	},
	{
		name: "a token is not larger than what voters have accepted", by: "TestTokenIsLargerThanThoseOfVotersWhateverTheClocksShow", file: "confirm.go",
		old: "token = max(token, n.last.token+1)", bug: "token = 1",
	},
	{
		name: "the deadline counts from the reply", file: "confirm.go",
		old: "driver.Deadline(sent[a.s.quorum-1], a.r.TTL)", bug: "driver.Deadline(time.Now(), a.r.TTL)",
	},
	{
		name: "a minority renews", file: "lease.go",
		old: "case t.yes >= s.quorum:\n\t\tdeadline", bug: "case t.yes >= 1:\n\t\tdeadline",
	},
	{
		name: "a renewal counts from the reply", file: "lease.go",
		old: "deadline := driver.Deadline(sent, r.TTL)", bug: "deadline := driver.Deadline(sent.Add(r.TTL/2), r.TTL)",
	},
	{
		name: "an acquisition that gives up keeps its votes", by: "TestEightWhoWaitAreAllServedSoon", file: "acquisition.go",
		old: "n.voted, n.askAt = false, again\n", bug: "n.askAt = again\n\t\t\tcontinue\n",
	},
	{
		name: "a node accepts smaller tokens", file: "model_test.go",
		old: "(c.token > r.token || c.token == r.accepted)", bug: "(c.token > 0)",
	},
	{
		name: "a node accepts smaller tokens with its vote", file: "model_test.go",
		old: "c.token > max(r.token, m.boot,", bug: "c.token > max(0, m.boot,",
	},
	{
		name: "a yield gives back whatever its owner has", by: "TestTokenThatMayBeGivenBackIsNotTakenUp", file: "model_test.go",
		old: "(r.accepted == 0 || r.accepted == c.token)", bug: "true",
	},
	{
		name: "a renewal leaves the token of an earlier attempt", by: "TestRenewedVoteIsNotGivenBack", file: "model_test.go",
		old: "if r.has(c.owner) && c.token > r.token {", bug: "if r.has(c.owner) && r.accepted == 0 && c.token > r.token {",
	},
	{
		name: "a token that may have been given back is taken up", by: "TestTokenThatMayBeGivenBackIsNotTakenUp", file: "confirm.go",
		old: "case !slices.Contains(a.proposed, n.last.accepted):", bug: "default:",
	},
	{
		name: "a token that was given back is taken up by who waits", by: "TestTokenThatMayBeGivenBackIsNotTakenUp", file: "acquisition.go",
		old: "a.splitSince, a.bid = time.Time{}, 0", bug: "a.splitSince = time.Time{}",
	},
	{
		name: "a token is made twice", by: "TestTokenThatMayBeGivenBackIsNotTakenUp", file: "acquisition.go",
		old: "token = max(token, a.proposed[n-1]+1)", bug: "token = max(token, a.proposed[n-1])",
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
// simulation to fail, or the test that is to find it.
func TestSimulationCatchesMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles and runs the simulation once for each bug")
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			by, sign, of := "TestSimulation", "simulation: seed ", []string{"simulation_test.go", "simulation_caller_test.go", "model_test.go", "record_test.go"}
			if m.by != "" {
				by, sign, of = m.by, "--- FAIL: "+m.by, nil
			}
			testkit.Mutant{
				File: m.file, Old: m.old, Bug: m.bug, Of: of,
				Args: []string{"-p=1", "-run", "^" + by + "$", "."},
				Env:  []string{counts.Asks("schedules", 4000), counts.Seed + "=", "GOMAXPROCS=1"},
				Sign: []string{sign},
			}.MustBeFound(t)
		})
	}
	t.Attr("figure-6", fmt.Sprintf("%d bugs, each caught by the simulation or by a test of the schedule", len(mutants)))
}
