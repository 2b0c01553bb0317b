package zklock

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/internal/kit"
)

const (
	firstPause = 20 * time.Millisecond // before something is asked again
	maxPause   = time.Second

	// cleaners bounds how many ends of given-up owners are asked for at once.
	cleaners = 1024
)

// debt is an owner that was given up and whose end the servers have not confirmed.
type debt struct {
	parent string
	mark   string
	name   string          // of its node; empty if that is not known
	after  <-chan struct{} // closed when the request that makes the node is over; may be nil
	ttl    time.Duration   // the node lasts no longer than that
}

// owe has the owner ended. When its TTL is over others may end it.
func (s *session) owe(d debt) {
	s.debts.Owe(d, kit.Debt{Limit: d.ttl + 2*s.timeout, After: d.after, End: func(ctx context.Context) error {
		return s.end(caller{ctx, s.Ctx.Done()}, d)
	}})
}

// end asks once for the owner's node to be deleted.
func (s *session) end(by caller, d debt) error {
	name := d.name
	if name == "" {
		m, ok, err := s.find(by, d.parent, d.mark)
		if err != nil || !ok {
			return classify(err)
		}
		name = m.name
	}
	if err := s.remove(by, d.parent+"/"+name); err != nil && err != zk.ErrNoNode && err != zk.ErrSessionExpired {
		return classify(err)
	}
	return nil
}
