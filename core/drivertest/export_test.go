package drivertest

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
