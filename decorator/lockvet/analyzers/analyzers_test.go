package analyzers_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/lockaround/lockaround/decorator/lockvet/analyzers"
)

// testdata is the module of the cases. It is apart since it requires the libraries, which who
// uses the tool need not have.
func testdata(t *testing.T) string {
	dir, err := filepath.Abs(filepath.Join("..", "testdata"))
	if err != nil {
		t.Fatal(err)
	}
	// The loader of analysistest fetches nothing.
	fetch := exec.Command("go", "list", "-deps", "./...")
	fetch.Dir, fetch.Stderr, fetch.Env = dir, os.Stderr, append(os.Environ(), "GOWORK=off")
	if err := fetch.Run(); err != nil {
		t.Fatal("fetching what the cases import:", err)
	}
	return dir
}

func TestChecksReportWhatIsWrongAndNothingElse(t *testing.T) {
	dir := testdata(t)
	for _, tt := range []struct {
		check    *analysis.Analyzer
		packages []string
	}{
		{analyzers.Result, []string{"./result"}},
		{analyzers.Ctx, []string{"./ctx"}},
		{analyzers.Escape, []string{"./escape"}},
		{analyzers.Tx, []string{"./tx"}},
		{analyzers.Bypass, []string{"./bypass/..."}},
		{analyzers.Key, []string{"./key"}},
	} {
		t.Run(tt.check.Name, func(t *testing.T) {
			analysistest.Run(t, dir, tt.check, tt.packages...)
		})
	}
}

func TestContextIsPassedWhereItIsCertainToMeanTheSameCall(t *testing.T) {
	analysistest.RunWithSuggestedFixes(t, testdata(t), analyzers.Ctx, "./fix")
}

func TestChecksAreWellFormedAndHaveNames(t *testing.T) {
	all := analyzers.Analyzers()
	if err := analysis.Validate(all); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, a := range all {
		if !strings.HasPrefix(a.Name, "lock") || names[a.Name] {
			t.Errorf("a check is called %s", a.Name)
		}
		names[a.Name] = true
		for _, part := range []string{"Wrong:", "Right"} {
			if !strings.Contains(a.Doc, part) {
				t.Errorf("the documentation of %s has no %q", a.Name, part)
			}
		}
	}
	if len(names) != 6 {
		t.Errorf("there are %d checks", len(names))
	}
}
