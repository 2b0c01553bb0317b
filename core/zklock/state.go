package zklock

import (
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// session is one engine's session with the servers. The structs of its state are here, since they
// name each other. Its calls are in acquire.go and wait.go, renew.go, release.go and inspect.go.
type session struct {
	*config
	sink       driver.Sink
	timeout    time.Duration // of one attempt
	client     *client
	claims     claims
	keyWatches keyWatches

	*kit.Life
	debts *kit.Debts[debt]
}

// claims are a session's owners, from their first request until some time after their end.
type claims struct {
	s  *session
	mu sync.Mutex

	requests map[driver.Owner]*request
	leases   map[driver.Owner]*lease
	ended    *kit.Recent[driver.Owner, endReason]

	watched map[string]map[*request]struct{} // by the path of their target

	crowded *kit.Crowded
}

// lease is a lease that the session holds. Its fields are guarded by claims.mu.
type lease struct {
	id            driver.ID
	parent        string
	name          string
	capacity      int32
	version       int32 // of its node, as last known
	token         int64
	since         int64
	lowered       bool      // a renewal was sent that lowers it
	endsAtServers time.Time // by this process's clock
	deadline      time.Time // the latest deadline that a caller was given
	timer         *time.Timer
}

// endReason is how an owner ended, or that its end is under way.
type endReason uint8

const (
	released  endReason = iota + 1 // by a release or a replacement
	releasing                      // by a release, sent in time and not answered yet
	notHeld                        // otherwise: expired, withdrawn, taken away, lost
)

// request is one running Acquire. Once its node is created it has a place in the line.
type request struct {
	s *session
	driver.Request
	parent  string // the key's node
	mark    string
	done    chan struct{} // closed when the request has been granted or has failed
	changed kit.Signal

	// Guarded by s.claims.mu.
	name        string // of its node; empty before that is created
	watching    string // the path of the target
	armed       bool   // the servers will send an event when the target changes
	watchedGone bool   // the target was deleted
	nodeLost    bool   // its node is gone: ZooKeeper's session has expired, or the request was refused

	// Of Acquire's goroutine.
	creation     pendingCall // the call that creates the node
	replaced     bool        // the lease to replace has ended
	bold         bool        // its node says that it is granted, though it may wait
	told         bool        // the holders were told of it when it came
	alone        *written    // the write that has granted it the lease already; nil if none has
	capacity     int32
	version      int32     // of the node
	acked        time.Time // when the last answered write to the node was sent
	predecessors map[string]*predecessor
	keyVersion   int32 // the version of the key's node, when the line was last read
	waiters      int   // how many waited then, behind this place
	nextInLine   bool  // then this place was right behind the holders
	reported     bool  // the sink was told that the request waits
	begun        time.Time
}

// pendingCall is a call that its caller may have given up.
type pendingCall struct {
	sent bool          // it was handed to the client library
	done chan struct{} // closed when the library has returned; nil if not sent
}

// predecessor is what a waiter knows of a member before it.
type predecessor struct {
	version int32
	state   state
	ttl     time.Duration
	since   time.Time // when this version was first read
}

// keyWatches are a session's watches of the nodes of keys. A request that finds its key taken,
// or deletes the lease of another, writes to the key's own node, and the holders watch that
// node. So a holder is woken by such a request only, not by every place that comes and goes.
//
// A watch stays when the lease ends, for the session's next lease of the key, unless that is
// granted by a write to the key's node. Such a lease is watched a little later, so that one that
// ends at once costs no watch. The servers remove a watch with the key's node.
type keyWatches struct {
	s    *session
	mu   sync.Mutex
	keys map[string]*keyWatch // by the path of the key's node
}

// keyWatch is the watch of one key.
type keyWatch struct {
	// The session's leases, each with the version of the key's node at which the line was
	// last read for it.
	leases           map[*lease]int32
	version          int32       // of the key's node, when it was last watched
	watching         bool        // a watch is set, or is being set
	running          bool        // a goroutine executes run
	changedMeanwhile bool        // an event came while running
	timer            *time.Timer // starts run; nil if not set
}

// debt is an owner that was given up and has to be deleted at the servers.
type debt struct {
	parent string
	mark   string
	name   string          // of its node; empty if not known
	after  <-chan struct{} // closed when the call that creates the node has ended; may be nil
}

// written is the result of a write, and when it was sent.
type written struct {
	stat *zk.Stat
	sent time.Time
}
