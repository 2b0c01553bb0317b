package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhatWouldNotCompileOnAnotherSystemIsTold(t *testing.T) {
	t.Setenv("GOWORK", "off")
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"go.mod":       "module example.com/m\n\ngo 1.26\n",
		"m.go":         "package m\n\nimport \"strings\"\n\nfunc Upper(s string) string { return strings.ToUpper(s) }\n",
		"m_test.go":    "package m\n\nimport \"testing\"\n\nfunc TestUpper(t *testing.T) {\n\tif n := 1 << 40; n == 0 || Upper(\"a\") != \"A\" {\n\t\tt.Fail()\n\t}\n}\n",
		"stop/stop.go": "package stop\n\nimport \"syscall\"\n\nfunc Stop(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) }\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		system string
		want   []string // in a line each
	}{
		{"darwin/arm64", nil},
		{"linux/386", []string{"m_test.go:6:"}},
		{"windows/amd64", []string{"stop.go:5:", "stop.go:5:"}},
	} {
		var out bytes.Buffer
		code, err := system(tc.system, []string{"./..."}, &out)
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if out.Len() == 0 {
			lines = nil
		}
		if err != nil || code != min(len(tc.want), 1) || len(lines) != len(tc.want) {
			t.Errorf("%s: code %d, %v:\n%s", tc.system, code, err, &out)
			continue
		}
		for i, line := range lines {
			if !strings.HasPrefix(line, tc.system+": ") || !strings.Contains(line, tc.want[i]) {
				t.Errorf("%s: %q, want %q in it", tc.system, line, tc.want[i])
			}
		}
	}
	for _, wrong := range [][]string{{"windows", "./..."}, {"darwin/arm64", "./none/..."}, {"darwin/arm65", "./..."}} {
		if code, err := system(wrong[0], wrong[1:], &bytes.Buffer{}); err == nil && code == 0 {
			t.Errorf("%q is taken", wrong)
		}
	}
}
