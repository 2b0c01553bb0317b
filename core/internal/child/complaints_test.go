package child

import (
	"io"
	"strings"
	"testing"
)

func TestComplaintsTellThePanicOrTheLastLine(t *testing.T) {
	for text, want := range map[string]string{
		"": "",
		"one\ntwo\n\npanic: a bug\n\ngoroutine 1" + strings.Repeat("\nmain.main()", 5000): "panic: a bug",
		"connecting\nno such host\n": "no such host",
	} {
		c := new(complaints)
		for _, piece := range strings.SplitAfter(text, "\n") {
			if _, err := io.WriteString(c, piece); err != nil {
				t.Fatal(err)
			}
		}
		if got := c.String(); got != want {
			t.Errorf("of %d bytes it keeps %q; want %q", len(text), got, want)
		}
	}
}
