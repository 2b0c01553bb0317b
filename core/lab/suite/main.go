// Suite runs go test and counts, and looks at other systems.
//
//	suite run -log FILE ARGUMENT…   go test with those arguments: a line for each package,
//	                                the output of what failed, and all events in FILE
//	suite count FOLDER              what the logs in FOLDER hold: who failed, who was
//	                                skipped and why, and how many passed
//	suite flakes FOLDER…            a table of what failed in several runs, a folder each
//	suite system OS/ARCH PACKAGE…   what of packages and tests would not compile there
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

func main() {
	code, err := do(os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		code = 2
	}
	os.Exit(code)
}

const usage = "suite run -log FILE ARGUMENT… | suite count FOLDER | suite flakes FOLDER… | suite system OS/ARCH PACKAGE…"

func do(args []string, out io.Writer) (code int, err error) {
	switch {
	case len(args) > 3 && args[0] == "run" && args[1] == "-log":
		return run(args[2], args[3:], out)
	case len(args) == 2 && args[0] == "count":
		r, err := read(args[1])
		if err != nil {
			return 0, err
		}
		return r.tell(out), nil
	case len(args) > 1 && args[0] == "flakes":
		return flakes(args[1:], out)
	case len(args) > 2 && args[0] == "system":
		return system(args[1], args[2:], out)
	}
	return 0, fmt.Errorf("it is used as %s", usage)
}

// run runs go test. Its code is go test's.
func run(file string, args []string, out io.Writer) (code int, err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return 0, err
	}
	log, err := os.Create(file)
	if err != nil {
		return 0, err
	}
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	r := results{began: time.Now()}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if _, werr := log.Write(line); werr != nil {
			return 0, werr
		}
		if len(line) > 0 {
			for _, told := range r.add(line) {
				if _, werr := fmt.Fprintln(out, told); werr != nil {
					return 0, werr
				}
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	if err := cmd.Wait(); err != nil && cmd.ProcessState == nil {
		return 0, err
	}
	return cmd.ProcessState.ExitCode(), log.Close()
}
