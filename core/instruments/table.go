package instruments

import (
	"slices"

	"go.opentelemetry.io/otel/attribute"
)

// Kind is what an instrument measures with.
type Kind uint8

// The kinds. The zero value is none.
const (
	Counter       Kind = iota + 1 // of int64, which only rises
	UpDownCounter                 // of int64, which rises and falls
	Gauge                         // read when metrics are collected
	Histogram                     // of float64, with explicit buckets
)

// String returns the name of the kind.
func (k Kind) String() string {
	switch k {
	case Counter:
		return "counter"
	case UpDownCounter:
		return "up-down counter"
	case Gauge:
		return "gauge"
	case Histogram:
		return "histogram"
	}
	return "unknown"
}

// Instrument is one line of the table. Its slices belong to the table: nobody changes them.
type Instrument struct {
	Name        string
	Scope       string // of the meter
	Kind        Kind
	Unit        string // of UCUM
	Description string
	Attributes  []Attribute // that each measurement has
	Buckets     []float64   // the upper bounds of a Histogram's, in its unit
}

// Attribute is one of an instrument.
type Attribute struct {
	Key    attribute.Key
	Values []string // all that there are; nil if the program has them, such as the names of policies
}

// The keys of attributes.
const (
	NameKey      = attribute.Key("lock.name")   // Policy.Name, or the key's template
	DriverKey    = attribute.Key("lock.driver") // Capabilities.Name
	ModeKey      = attribute.Key("lock.mode")
	OutcomeKey   = attribute.Key("lock.outcome")
	ConditionKey = attribute.Key("lock.node.condition")
	AddressKey   = attribute.Key("server.address")
	PortKey      = attribute.Key("server.port")
)

const (
	core      = "github.com/lockaround/lockaround/core"
	decorator = "github.com/lockaround/lockaround/decorator"
	redlock   = "github.com/lockaround/lockaround/core/redlock"
)

var (
	name   = Attribute{Key: NameKey}
	policy = []Attribute{name, {Key: DriverKey}, {Key: ModeKey, Values: []string{"exclusive", "shared", "semaphore"}}}
)

// by returns the attributes, and after them the outcome with these values.
func by(attributes []Attribute, outcomes ...string) []Attribute {
	return append(slices.Clip(attributes), Attribute{OutcomeKey, outcomes})
}

var table []Instrument

// add puts an instrument into the table.
func add(i Instrument) Instrument {
	table = append(table, i)
	return i
}

// All returns the table, in the order in which it is written.
func All() []Instrument { return slices.Clone(table) }

var buckets = []float64{.0001, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// Of every lock.
var (
	WaitDuration = add(Instrument{
		Name: "lock.wait.duration", Scope: core, Kind: Histogram, Unit: "s", Buckets: buckets,
		Description: "Time from asking for a lock to getting it or giving up.",
		Attributes: by(policy, "acquired", "busy", "full", "timeout", "unavailable", "closed", "canceled", "deadline_exceeded",
			"lost", "max_hold", "error"),
	})
	HoldDuration = add(Instrument{
		Name: "lock.hold.duration", Scope: core, Kind: Histogram, Unit: "s", Buckets: buckets,
		Description: "Time from getting a lock to releasing it.",
		Attributes:  by(policy, "released", "lost", "max_hold", "unavailable", "closed"),
	})
	Held = add(Instrument{
		Name: "lock.held", Scope: core, Kind: UpDownCounter, Unit: "{lock}", Attributes: policy,
		Description: "Locks that callers of this process hold.",
	})
	Waiting = add(Instrument{
		Name: "lock.waiting", Scope: core, Kind: UpDownCounter, Unit: "{caller}", Attributes: policy,
		Description: "Callers of this process that wait for a lock.",
	})
	Lost = add(Instrument{
		Name: "lock.lost", Scope: core, Kind: Counter, Unit: "{lock}", Attributes: policy,
		Description: "Locks that ended before their holder released them.",
	})
	HandOff = add(Instrument{
		Name: "lock.handoff", Scope: core, Kind: Counter, Unit: "{handoff}", Attributes: policy,
		Description: "Locks handed on within this process, without the store.",
	})
)

// NodeCondition is of locks in a quorum of Redis servers, package redlock.
var NodeCondition = add(Instrument{
	Name: "lock.node.condition", Scope: redlock, Kind: Gauge, Unit: "{node}",
	Description: "1 for what a node of a quorum was last seen to be, 0 for what it was not.",
	Attributes: []Attribute{
		{Key: AddressKey},
		{Key: PortKey},
		{ConditionKey, []string{"unknown", "up", "slow", "down", "restarted_empty"}},
	},
})

// Of package decorator/cache.
var (
	CacheGets = add(Instrument{
		Name: "lock.cache.gets", Scope: decorator, Kind: Counter, Unit: "{call}",
		Description: "Calls of a cached function by this process, by how they ended.",
		Attributes:  by([]Attribute{name}, "fresh", "stale", "loaded", "failed"),
	})
	CacheLoadDuration = add(Instrument{
		Name: "lock.cache.load.duration", Scope: decorator, Kind: Histogram, Unit: "s", Buckets: buckets[2:],
		Description: "Time that the function under a cache ran, until its value was stored.",
		Attributes:  by([]Attribute{name}, "stored", "unstored", "store_failed", "not_found", "failed", "panicked"),
	})
)

// IdempotentCalls is of package decorator/idempotent.
var IdempotentCalls = add(Instrument{
	Name: "lock.idempotent.calls", Scope: decorator, Kind: Counter, Unit: "{call}",
	Description: "Calls of idempotent functions, routes and methods by this process, by how they ended.",
	Attributes: by([]Attribute{name}, "ran", "unkept", "unstored", "panicked", "replayed", "concurrent", "mismatch", "unknown",
		"no_replay", "unavailable", "lost", "refused"),
})

var ended = []string{"done", "retry", "dead", "superseded", "unrecorded"}

// Of serial.Must.
var (
	QueueAttempts = add(Instrument{
		Name: "lock.queue.attempts", Scope: decorator, Kind: Counter, Unit: "{run}", Attributes: []Attribute{name},
		Description: "Runs of queued items that this process has begun.",
	})
	QueueRuns = add(Instrument{
		Name: "lock.queue.runs", Scope: decorator, Kind: Counter, Unit: "{run}",
		Description: "Runs of queued items of this process that have ended, by how.",
		Attributes:  by([]Attribute{name}, ended...),
	})
	QueueDead = add(Instrument{
		Name: "lock.queue.dead", Scope: decorator, Kind: Counter, Unit: "{item}", Attributes: []Attribute{name},
		Description: "Items that this process has made dead.",
	})
	QueueRunDuration = add(Instrument{
		Name: "lock.queue.run.duration", Scope: decorator, Kind: Histogram, Unit: "s", Buckets: append(slices.Clip(buckets[2:]), 300),
		Description: "Time that the function of a queue ran.",
		Attributes:  by([]Attribute{name}, ended...),
	})
	QueueLength = add(Instrument{
		Name: "lock.queue.length", Scope: decorator, Kind: Gauge, Unit: "{item}", Attributes: []Attribute{name},
		Description: "Items of a queue that have not ended, over all processes.",
	})
	QueueOldest = add(Instrument{
		Name: "lock.queue.oldest", Scope: decorator, Kind: Gauge, Unit: "s", Attributes: []Attribute{name},
		Description: "Age of the oldest item that is the first of its key, over all processes.",
	})
	QueueParked = add(Instrument{
		Name: "lock.queue.parked", Scope: decorator, Kind: Gauge, Unit: "{key}", Attributes: []Attribute{name},
		Description: "Keys of a queue that wait for an operator, over all processes.",
	})
)

// Of package decorator/job.
var (
	JobRuns = add(Instrument{
		Name: "lock.job.runs", Scope: decorator, Kind: Counter, Unit: "{call}",
		Description: "Calls of a job by this process, by how they ended.",
		Attributes:  by([]Attribute{name}, "ran", "caught_up", "failed", "lost", "skipped", "not_run"),
	})
	JobDuration = add(Instrument{
		Name: "lock.job.duration", Scope: decorator, Kind: Histogram, Unit: "s",
		Buckets:     []float64{.01, .1, .5, 1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10800, 21600},
		Description: "Time that the function of a job ran.",
		Attributes:  by([]Attribute{name}, "ran", "caught_up", "failed", "lost"),
	})
	JobLastSuccess = add(Instrument{
		Name: "lock.job.last_success", Scope: decorator, Kind: Gauge, Unit: "s", Attributes: []Attribute{name},
		Description: "When this process last ran the job without an error, as Unix time.",
	})
)

// Of package decorator/leader.
var (
	LeaderLeading = add(Instrument{
		Name: "lock.leader.leading", Scope: decorator, Kind: Gauge, Unit: "{process}", Attributes: []Attribute{name},
		Description: "1 if this process leads, otherwise 0.",
	})
	LeaderTerms = add(Instrument{
		Name: "lock.leader.terms", Scope: decorator, Kind: Counter, Unit: "{term}",
		Description: "Terms of this process that have ended, by how.",
		Attributes:  by([]Attribute{name}, "done", "failed", "resigned", "lost"),
	})
)

// Outcomes are the values of OutcomeKey that the instrument has; nil if it has no such attribute.
func (i Instrument) Outcomes() []string {
	for _, a := range i.Attributes {
		if a.Key == OutcomeKey {
			return a.Values
		}
	}
	return nil
}
