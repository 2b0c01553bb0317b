// Package deep is internal to foreign.
package deep

// Treasure is out of reach.
type Treasure struct{ Gold int }
