package drivertest

import (
	"testing"
	"testing/synctest"
)

// Names returns the names of the checks.
func Names() []string {
	names := make([]string, len(checks))
	for i, c := range checks {
		names[i] = c.name
	}
	return names
}

// Missing returns what the checks that would be skipped lack.
func Missing(h *Harness) map[string][]string {
	all := make(map[string][]string)
	f := &fixture{h: h, caps: h.Driver.Capabilities()}
	for _, c := range checks {
		if m := c.missing(f); len(m) > 0 {
			all[c.name] = m
		}
	}
	return all
}

// RunInBubbles is Run in virtual time, for a driver that does no input or output.
func RunInBubbles(t *testing.T, newHarness func(*testing.T) *Harness) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.startInBubble(t, newHarness) })
	}
	t.Run("Promptly", func(t *testing.T) { runPromptly(t, newHarness, check.startInBubble) })
}

func (c check) startInBubble(t *testing.T, newHarness func(*testing.T) *Harness) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { c.run(t, newHarness, nil) })
}
