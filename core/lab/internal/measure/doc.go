// Package measure is what the laboratories measure with: what keeps the machine from being measured
// instead, and what was measured, counted and written.
//
// # Files
//
//	awake.go    keeps cores from halting, with spin_linux.go and spin_other.go
//	precise.go  waits more exactly than Go's timers do, with nap_linux.go and nap_other.go
//	usage.go    what a process uses
//	waits.go    counts durations
//	figure.go   units, digits and medians
package measure
