package zklock

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/internal/kit"
)

const (
	firstPause = 20 * time.Millisecond // before a retry
	maxPause   = time.Second

	// cleaners bounds how many given-up owners are deleted at once.
	cleaners = 1024
)

// owe starts to delete an owner. When the TTL is over, other sessions that wait may do so too; but
// for them its node lasts as long as this process's session at the servers. So there is no limit.
func (s *session) owe(d debt) {
	s.debts.Owe(d, kit.Debt{After: d.after, End: func(ctx context.Context) error {
		return s.deleteOwner(caller{ctx, s.Ctx.Done()}, d)
	}})
}

// deleteOwner makes one attempt to delete an owner's node.
func (s *session) deleteOwner(c caller, d debt) error {
	name := d.name
	if name == "" {
		m, ok, err := s.find(c, d.parent, d.mark)
		if err != nil || !ok {
			return classify(err)
		}
		name = m.name
	}
	if err := s.remove(c, d.parent+"/"+name); err != nil && err != zk.ErrNoNode && err != zk.ErrSessionExpired {
		return classify(err)
	}
	return nil
}
