package middleware

import (
	"os/exec"
	"strings"
	"testing"
)

// gin decodes JSON by another library if it is built with one of these tags.
func TestKeysOfABodyAreRefusedWithOtherDecoders(t *testing.T) {
	if testing.Short() {
		t.Skip("builds gin with other decoders")
	}
	for _, tag := range []string{"jsoniter", "go_json", "sonic"} {
		t.Run(tag, func(t *testing.T) {
			run := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-v", "-tags", tag, "-run", "^TestOtherDecoder$", ".")
			if out, err := run.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestOtherDecoder") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
