package core

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// logPatience is how long whoever has a line to log waits for the program's handler.
	logPatience = 100 * time.Millisecond
	// mostLate is how many lines the handler may be busy with that nobody waits for.
	mostLate = 64
	// logSettles is how long Close waits for them.
	logSettles = 3 * time.Second
)

// logs is the way to the program's log handler. A line may come from a goroutine of the engine's
// own, and with a mutex held that others need. So the handler runs on a goroutine of its own: its
// panic and its Goexit end nothing but the line, and one that is slow, or never returns, keeps
// nobody waiting for longer than logPatience.
type logs struct {
	guarded atomic.Pointer[guardedLogger] // the latest: slog.Default changes

	mu      sync.Mutex
	late    int           // lines that the handler is busy with and nobody waits for
	none    chan struct{} // closed when late is 0; nil if nobody waits for that
	dropped int           // lines left out since, because there were too many of those
	failed  sync.Once     // stderr says so
}

type guardedLogger struct{ of, as *slog.Logger }

// guard returns l with its handler guarded.
func (g *logs) guard(l *slog.Logger) *slog.Logger {
	known := g.guarded.Load()
	if known == nil || known.of != l {
		known = &guardedLogger{l, slog.New(&logHandler{g, l.Handler()})}
		g.guarded.Store(known)
	}
	return known.as
}

// settle waits for lines that are late, but no longer than that.
func (g *logs) settle(within time.Duration) {
	g.mu.Lock()
	if g.late == 0 {
		g.mu.Unlock()
		return
	}
	if g.none == nil {
		g.none = make(chan struct{})
	}
	none := g.none
	g.mu.Unlock()
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-none:
	case <-late.C:
	}
}

// rescue recovers from a panic of the handler. The log cannot say so.
func (g *logs) rescue() {
	if fault := recover(); fault != nil {
		g.failed.Do(func() {
			fmt.Fprintf(os.Stderr, "lockaround: the log handler panicked, and a line is lost: %v\n%s", fault, debug.Stack())
		})
	}
}

// logHandler is a handler of the program's, guarded.
type logHandler struct {
	*logs
	own slog.Handler
}

// Enabled asks about lines that are rare only when they are handled, where no mutex is held.
func (h *logHandler) Enabled(ctx context.Context, l slog.Level) (yes bool) {
	if l >= slog.LevelInfo {
		return true
	}
	defer h.rescue()
	return h.own.Enabled(ctx, l)
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.with(func() slog.Handler { return h.own.WithAttrs(attrs) })
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	return h.with(func() slog.Handler { return h.own.WithGroup(name) })
}

// with guards what derive makes of the handler. If that panics, the handler stays as it is.
func (h *logHandler) with(derive func() slog.Handler) slog.Handler {
	own := h.own
	func() {
		defer h.rescue()
		own = derive()
	}()
	return &logHandler{h.logs, own}
}

// line is one that is being handled. Its fields are guarded by logs.mu.
type line struct {
	late    bool // nobody waits for it
	through bool
	done    chan struct{}
}

// begin counts a line in, unless too many are late.
func (g *logs) begin() *line {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.late >= mostLate {
		g.dropped++
		return nil
	}
	l := &line{late: g.late > 0, done: make(chan struct{})}
	if l.late {
		g.late++
	}
	return l
}

// leave notes that nobody waits for the line any longer.
func (g *logs) leave(l *line) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !l.through && !l.late {
		l.late = true
		g.late++
	}
}

// end counts a line out.
func (g *logs) end(l *line) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l.through = true
	close(l.done)
	if !l.late {
		return
	}
	if g.late--; g.late == 0 && g.none != nil {
		close(g.none)
		g.none = nil
	}
}

// left returns how many lines were left out since the last call.
func (g *logs) left() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, g.dropped = g.dropped, 0
	return n
}

// Handle has the line handled. It waits for that unless the handler is late with others.
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	l := h.begin()
	if l == nil {
		return nil
	}
	late := l.late
	go func() {
		defer h.end(l)
		defer h.rescue()
		h.handle(ctx, r)
	}()
	if late {
		return nil
	}
	timer := time.NewTimer(logPatience)
	defer timer.Stop()
	select {
	case <-l.done:
	case <-timer.C:
		h.leave(l)
	}
	return nil
}

// handle calls the program's handler, and says before how many lines were left out.
func (h *logHandler) handle(ctx context.Context, r slog.Record) {
	if !h.own.Enabled(ctx, r.Level) {
		return
	}
	if n := h.left(); n > 0 {
		said := slog.NewRecord(time.Now(), slog.LevelWarn, "lockaround: lines were left out of the log, whose handler did not return", 0)
		said.Add("lines", n)
		_ = h.own.Handle(ctx, said)
	}
	_ = h.own.Handle(ctx, r) // nobody can do anything about it
}
