package observe

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"runtime/debug"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/manager"
)

// tick is how often the hub looks for changes while somebody watches.
const tick = 200 * time.Millisecond

// Config is what a hub is made with.
type Config struct {
	Manager  *manager.Manager
	Prefix   string // of the engine's keys: what the engines of a namespace have in common
	Identity string // of the process
	// Overridden tells which fields of the policy of that name a configuration sets.
	Overridden func(policy string) Fields
}

// Viewer is who watches in this process: package core/watch. Its methods are called with the hub's
// mutex held, but for Reported.
type Viewer interface {
	Watched() bool           // somebody watches
	Tell(now time.Time)      // tells those who watch whether something has changed
	Rest()                   // nobody watches any more
	Close()                  // ends every watch
	Reported(message []byte) // handles a message to those who watch
}

// Hub is what an engine has for those who watch. It is safe for concurrent use.
type Hub struct {
	Config
	Gossip driver.Gossip // nil: engines cannot report to each other

	sync.Mutex // guards what follows, and what the viewer knows

	Self   *Origin   // nil: nobody has watched yet
	Rec    *Recorder // nil: nobody watches
	Closed bool
	Silent bool // the store did not take the last message

	viewer  Viewer // nil: nobody has watched here yet
	sharing sharing
	stop    context.CancelFunc // of the run under way

	unasked func() // ends the listening to asks
	running sync.WaitGroup
}

// Origin names an engine.
type Origin struct {
	Identity string
	Instance Instance
}

// Instance names an engine: at random, so that two never have the same.
type Instance [8]byte

// String returns the instance in hexadecimal digits.
func (i Instance) String() string { return hex.EncodeToString(i[:]) }

// Started is when this process began, as far as this package knows.
var Started = time.Now()

// Version is what the program says that it is: the version of its module or of its source, at most
// [MaxVersion] bytes; empty if it was built without.
var Version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	version := info.Main.Version
	if version == "" || version == "(devel)" {
		version = ""
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				version = s.Value[:min(len(s.Value), 12)]
			}
		}
	}
	return version[:min(len(version), MaxVersion)]
})

// Of is the hub of an engine. The error is the engine's, of a watch that cannot begin. Package core sets it,
// which alone knows what an engine has.
var Of func(ctx context.Context, engine any) (*Hub, error)

// New returns a hub without watchers. It listens to those who ask for reports.
func New(c Config) *Hub {
	h := &Hub{Config: c, Gossip: c.Manager.Gossip(), unasked: func() {}}
	if h.Gossip != nil && len(h.reports()) <= maxTopic {
		h.unasked = h.Gossip.Listen(h.asks(), driver.Listener{Heard: h.asked, Listening: func() {}})
	} else {
		h.Gossip = nil
	}
	return h
}

// maxTopic is how many bytes a topic has at most.
const maxTopic = 512

// asks and reports are the topics of the engines of a namespace.
func (h *Hub) asks() string    { return h.Prefix + "asks" }
func (h *Hub) reports() string { return h.Prefix + "reports" }

// Viewer returns the viewer of this process, which create makes if there is none. The mutex is held.
func (h *Hub) Viewer(create func() Viewer) Viewer {
	if h.viewer == nil {
		h.viewer = create()
	}
	return h.viewer
}

func (h *Hub) watched() bool { return h.viewer != nil && h.viewer.Watched() }

// Begin starts to record, unless the hub does. The mutex is held.
func (h *Hub) Begin() {
	if h.Rec != nil {
		return
	}
	if h.Self == nil {
		h.Self = &Origin{Identity: h.Identity}
		_, _ = rand.Read(h.Self.Instance[:]) // never fails: crypto/rand aborts the program instead
	}
	h.Rec = NewRecorder(h.Self, len(h.Prefix))
	h.sharing.seen, h.sharing.named = 0, nil
	h.Manager.Observe(h.Rec)
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	h.running.Go(func() { h.run(ctx) })
}

// Rest ends what nobody needs any more. The mutex is held.
func (h *Hub) Rest(now time.Time) {
	if h.Rec == nil || h.watched() && !h.Closed {
		return
	}
	if h.viewer != nil {
		h.viewer.Rest()
	}
	if h.sharing.until.After(now) && !h.Closed {
		return
	}
	h.Manager.Observe(nil)
	h.Rec = nil
	h.stop()
}

// run tells the viewer of time that passes, and reports to others, until ctx ends.
func (h *Hub) run(ctx context.Context) {
	every := time.NewTicker(tick)
	defer every.Stop()
	stop := func() {}
	defer func() { stop() }()
	listens := false
	for {
		h.Lock()
		if ctx.Err() != nil {
			h.Unlock()
			return
		}
		now := time.Now()
		h.Rest(now)
		watched := h.watched()
		if watched {
			h.viewer.Tell(now)
		}
		h.Unlock()

		if h.Gossip != nil && watched != listens {
			stop()
			if stop = func() {}; watched {
				stop = h.Gossip.Listen(h.reports(), driver.Listener{Heard: h.viewer.Reported, Listening: h.listening})
			}
			listens = watched
		}
		if h.Gossip != nil {
			h.share(ctx, now)
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}

// Close ends every watch, tells those who watch elsewhere, and waits for the hub's goroutine.
func (h *Hub) Close() {
	h.unasked()
	h.Lock()
	if h.Closed {
		h.Unlock()
		h.running.Wait()
		return
	}
	h.Closed = true
	if h.viewer != nil {
		h.viewer.Close()
	}
	now := time.Now()
	farewell := h.Rec != nil && h.sharing.until.After(now)
	h.Rest(now)
	h.Unlock()
	h.running.Wait()
	if farewell {
		ctx, cancel := context.WithTimeout(context.Background(), farewellTime)
		defer cancel()
		_ = h.Gossip.Tell(ctx, h.reports(), Message(KindClosed, h.Self.Instance)) // silence says so too, later
	}
}

// farewellTime is how long the end of an engine may take because others are told of it.
const farewellTime = 100 * time.Millisecond
