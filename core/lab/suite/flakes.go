package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// flakes writes a table of several runs, and one of what failed in them. The code is 1 if
// a run was red. A run's folder has a file "run", which says what was run, how long that
// took, and how it ended: "test beside 3 builds, 312 s, exit 0".
func flakes(folders []string, out io.Writer) (code int, err error) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) } // nobody may read it
	red := make(map[string][]string)                                                     // the folders of who failed
	say("| run | what | tests |\n|---|---|---|\n")
	for _, folder := range folders {
		said, err := os.ReadFile(filepath.Join(folder, "run"))
		if err != nil {
			return 0, err
		}
		what := strings.TrimSpace(string(said))
		r, err := read(folder)
		if err != nil {
			return 0, err
		}
		say("| %s | %s | %s |\n", filepath.Base(folder), what, r.count(func(test) bool { return true }))
		for _, t := range r.failed() {
			red[t.String()] = append(red[t.String()], filepath.Base(folder))
		}
		if !strings.HasSuffix(what, "exit 0") {
			code = 1
			if len(r.failed()) == 0 {
				red["(no test: see its output)"] = append(red["(no test: see its output)"], filepath.Base(folder))
			}
		}
	}
	if len(red) == 0 {
		say("\nNothing failed in %d runs.\n", len(folders))
		return code, nil
	}
	say("\n| failed | of %d | runs |\n|---|---|---|\n", len(folders))
	for _, name := range slices.SortedFunc(maps.Keys(red), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(red[b]), len(red[a])), cmp.Compare(a, b))
	}) {
		say("| %s | %d | %s |\n", name, len(red[name]), strings.Join(red[name], ", "))
	}
	return 1, nil
}
