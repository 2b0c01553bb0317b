package contest

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type hour struct{}

func (hour) Longest() time.Duration { return time.Hour }

func TestCompareRefusesWhatCannotWork(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	for want, flags := range map[string]struct {
		rounds          int
		only, with, out string
	}{
		"-out DIR":         {1, "", "", ""},
		"-rounds 0":        {0, "", "", out},
		"-only:":           {1, "(", "", out},
		"-peers:":          {1, "", "(", out},
		"no such peer":     {1, "", "nobody", out},
		"no such scenario": {1, "nothing", "", out},
	} {
		p := Plan[hour, func()]{Rounds: flags.rounds, Scenarios: []Scenario[hour, func()]{{Name: "all"}}, Peers: []Peer[func()]{{Name: "one"}}}
		if err := p.Compare(t.Context(), flags.only, flags.with, flags.out, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Compare: %v; want %q in it", err, want)
		}
	}
}
