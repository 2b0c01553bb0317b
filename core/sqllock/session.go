package sqllock

import (
	"context"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// session implements driver.Session. Its calls make decisions (decision.go), each in an attempt
// that the caller may abandon (attempt.go). Its loops poll, listen and sweep.
type session struct {
	config
	tables   tables
	identity string
	sink     driver.Sink
	timeout  time.Duration // for the answer to a statement
	id       sessionID

	claims       ownClaims
	hearing      hearing
	spent        spentClaims
	keyMutexes   keyMutexes
	renewalSlots chan struct{} // few, which leaves connections for other calls
	startOnce    sync.Once     // startLoops

	*kit.Life
	debts *kit.Debts[driver.Owner]
}

func newSession(c config, dc driver.Config) *session {
	s := &session{config: c, identity: dc.Identity, sink: dc.Sink, timeout: dc.StoreTimeout, id: newSessionID(), renewalSlots: make(chan struct{}, 4), Life: kit.NewLife("sql", "the server")}
	s.tables.init(c)
	s.claims.init()
	s.spent.init(c, s.Life)
	s.debts = kit.NewDebts[driver.Owner](s.Life, 4) // few at a time, which leaves connections for other calls
	return s
}

// Close ends the session.
func (s *session) Close(ctx context.Context) error { return s.Life.Close(ctx, s.debts.Drain, nil) }
