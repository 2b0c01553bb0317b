package main

import "github.com/lockaround/lockaround/core/zklock"

// zklock, with the defaults of lockaround. Each engine has a connection of its own.
func openZklock(addr string, s Scenario) (Process, error) {
	return newEngineProcess(zklock.New([]string{addr}), s, func() error { return nil })
}
