// Package observe makes what a watch shows: it records what an engine's queue does while somebody
// watches, asks the other engines of the namespace to report, and makes one picture of it all.
//
//	queue ── Note ──► recorder ◄── reports ── other engines
//	  │                   │                        ▲
//	  └── Look ────► View ┘      asks of a watch ──┘
//
// While nobody watches there is no recorder, no goroutine and no message: the queue loads one nil
// pointer for each call.
package observe
