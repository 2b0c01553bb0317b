// Package history is what the processes of a run write down, to be judged when it is
// over: one JSON object a line, all by one clock.
package history

// Op is what an event tells of.
type Op string

// The operations of clients.
const (
	Acquire  Op = "acquire"  // an acquisition that has returned
	Lost     Op = "lost"     // the lease told its holder that it has ended; Call and Return are when he heard
	Release  Op = "release"  // written before the release is called; Return is 0
	Released Op = "released" // the release has returned
)

// What the engine asked of its driver, below any mutant.
const (
	Grant Op = "grant" // an acquisition that the store has granted
	Renew Op = "renew"
	End   Op = "end" // a release, or an acquisition that ended the lease before it
)

// What the resource was asked for and answered, in its own order.
const (
	Read  Op = "read"
	Write Op = "write"
)

// The others.
const (
	Late  Op = "late"  // the process was to run at Call and did at Return: the machine was busy, or it was stopped
	Fault Op = "fault" // from before it was made until after it had gone
	Kill  Op = "kill"  // Process was killed after Call and had gone by Return
)

// The errors that checks tell apart; others stand as they are.
const (
	Stale   = "stale"    // the resource refuses the token
	NotHeld = "not held" // the driver says so of a lease
	Sent    = "sent"     // of a release: the store has not answered yet
)

// The modes of locks. An exclusive one has none.
const (
	Shared    = "shared"
	Semaphore = "semaphore"
)

// Event is one thing that happened. Times are in ns of [Now]'s clock, 0 if there is none.
type Event struct {
	Process  int    `json:"process"`          // from 1; 0 is the laboratory
	Client   int    `json:"client,omitempty"` // of the process, from 1; 0 is none
	Key      string `json:"key,omitempty"`
	Op       Op     `json:"op"`
	Owner    string `json:"owner,omitempty"` // names a lease, without being able to end it
	Token    int64  `json:"token,omitempty"`
	Mode     string `json:"mode,omitempty"`
	Room     int    `json:"room,omitempty"`   // of a semaphore, how many may hold it
	Strict   bool   `json:"strict,omitempty"` // all callers are served in turn
	Among    int    `json:"among,omitempty"`  // how many keys were asked for together, if it was more than one
	Keep     int64  `json:"keep,omitempty"`   // for how long the key stays taken after it was granted, also if it is released sooner
	TTL      int64  `json:"ttl,omitempty"`
	Call     int64  `json:"call"`
	Return   int64  `json:"return,omitempty"`
	Limit    int64  `json:"limit,omitempty"`    // when an acquisition has to have returned
	Deadline int64  `json:"deadline,omitempty"` // of the lease, as far as known at Return, or at Call if that is 0
	Value    int64  `json:"value,omitempty"`    // read or written
	Name     string `json:"name,omitempty"`     // of a fault
	Lossy    bool   `json:"lossy,omitempty"`    // after the fault the store need not know what it acknowledged before
	Outage   bool   `json:"outage,omitempty"`   // during the fault Process, or all if it is 0, may not be able to lock or release
	Error    string `json:"error,omitempty"`
}

// OK reports whether it succeeded.
func (e *Event) OK() bool { return e.Error == "" }
