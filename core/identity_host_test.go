package core

import (
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core/driver"
)

func TestIdentityOfAnyHostIsValid(t *testing.T) {
	for host, want := range map[string]string{
		"orders-7f9c":            "orders-7f9c:4194304",
		"":                       ":4194304",
		"büro pc\n":              "b--ro-pc-:4194304",
		strings.Repeat("h", 300): strings.Repeat("h", 56) + ":4194304",
	} {
		if got := identityOf(host, 1<<22); got != want || !driver.ValidIdentity(got) {
			t.Errorf("%q: %q, want %q", host, got, want)
		}
	}
}
