package cache

import "context"

// Announcer tells of what changes in a store, whoever has changed it.
type Announcer interface {
	// Listen calls up when it has begun to hear of every change, and changed with the
	// key of every value that is put or invalidated from then on, before or after the
	// change is answered. It blocks until ctx ends, or until it has to assume that it
	// does not hear of changes any more, and returns why. If up is called again,
	// changes may have been missed before. Both are called by one goroutine at a time,
	// and return at once.
	Listen(ctx context.Context, up func(), changed func(key string)) error
}

// Remote is a store that a [Tiered] can have copies of.
type Remote interface {
	Store
	Announcer
}
