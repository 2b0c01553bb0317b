package analyzers_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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

// TestChecksReportWhatIsWrongAndNothingElse runs each check on the folder of its cases. They are
// one analyzer, so that what the cases import is loaded once.
func TestChecksReportWhatIsWrongAndNothingElse(t *testing.T) {
	checks := map[string]*analysis.Analyzer{
		"bypass": analyzers.Bypass, "ctx": analyzers.Ctx, "escape": analyzers.Escape,
		"tx": analyzers.Tx, "result": analyzers.Result, "key": analyzers.Key,
	}
	all := &analysis.Analyzer{Name: "lockvet", Doc: "run the check that a folder is for"}
	for _, c := range checks {
		all.Requires = append(all.Requires, c.Requires...)
		all.FactTypes = append(all.FactTypes, c.FactTypes...)
	}
	var ran sync.Map // packages are looked at in parallel
	all.Run = func(pass *analysis.Pass) (any, error) {
		_, folder, ok := strings.Cut(pass.Pkg.Path(), "/lockvet/testdata/")
		folder, _, _ = strings.Cut(folder, "/")
		if !ok || checks[folder] == nil {
			return nil, nil
		}
		ran.Store(folder, true)
		return checks[folder].Run(pass)
	}
	analysistest.Run(t, testdata(t), all, "./bypass/...", "./ctx", "./escape", "./tx", "./result", "./key")
	for folder := range checks {
		if _, tried := ran.Load(folder); !tried {
			t.Errorf("%s was not tried", folder)
		}
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
