package driver

import "context"

// MaxGossip is how many bytes a message of [Gossip] has at most.
const MaxGossip = 16 << 10

// Gossip is an optional interface of a [Session], found by a type assertion. A session has it if
// it can pass messages between the sessions of a store on the way by which the store's pushes
// come, without a connection or a goroutine more. Engines tell each other so what their processes
// do, while somebody watches.
//
// Messages are not kept, and may be lost, come twice, or come in another order. Whoever may use
// the store can send them: a message is not believed, only shown.
type Gossip interface {
	Session

	// Listen makes the session listen to a topic, until stop is called. It does no I/O itself. A
	// session that has a way for pushes listens at once or soon; one that has none yet listens
	// from its first Acquire or Tell on, at no cost beyond what an Acquire costs anyway. A
	// second listener of a session to one topic takes the place of the first. A topic has 1 to 512 bytes, any of them.
	Listen(topic string, l Listener) (stop func())

	// Tell sends a message of at most [MaxGossip] bytes to every session that listens to the topic,
	// this one as well. It is one command of the store. No error says only that the store has it.
	Tell(ctx context.Context, topic string, message []byte) error
}

// Listener is who listens to a topic. Its functions are called while the store's pushes wait, and
// maybe before Listen or Tell has returned or after stop has: so they return soon, and call
// nothing of the session. They may be called at the same time. Neither is nil.
type Listener struct {
	// Listening says that the session listens from here on, for the first time or again. Messages
	// from before may be lost.
	Listening func()
	// Heard gets a message, which it may keep.
	Heard func(message []byte)
}
