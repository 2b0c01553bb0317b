// Package observe is what every process has for those who watch, in the same or in another process:
// it records what the engine's lock manager does while somebody watches, and reports it. Package core/watch
// shows it.
//
//	manager ── Note ──► Recorder ── report ──► the store ──► watch.Watcher elsewhere
//	  ▲                  │
//	  └── Look           └────────────────────────────────► watch.Watcher here
//
// While nobody watches there is no recorder, no goroutine and no message: the manager loads one nil
// pointer for each call.
//
// # Files
//
// hub.go begins and ends the recording; recorder.go keeps what happened, and tally.go counts it; sharing.go decides when to
// report, and rank.go which keys; report.go and wire.go have the messages.
package observe
