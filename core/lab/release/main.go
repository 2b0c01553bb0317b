// Release publishes the modules of this repository as files that the go command fetches
// them from, and compares what two releases export.
//
//	release publish VERSION FOLDER   the modules of the tree, in the folder FOLDER, which
//	                                 GOPROXY=file://FOLDER reads
//	release api OLD NEW              how what packages export differs between the trees in
//	                                 the folders OLD and NEW: - breaks callers, + adds
//
// Both run in the top folder of the repository.
package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	if err := do(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

const usage = "release publish VERSION FOLDER | release api OLD NEW"

func do(args []string, out io.Writer) error {
	switch {
	case len(args) == 3 && args[0] == "publish":
		return publish(".", args[1], args[2], out)
	case len(args) == 3 && args[0] == "api":
		return compare(args[1], args[2], out)
	}
	return fmt.Errorf("it is used as %s", usage)
}
