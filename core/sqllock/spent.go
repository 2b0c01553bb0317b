package sqllock

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// spentClaims are claims of MySQL that were released, and whose rows are to be deleted. Nobody
// counts them any more. Those that a session leaves behind are swept.
type spentClaims struct {
	config
	mu     sync.Mutex
	ids    []driver.ID
	since  time.Time // when the first of ids was added
	worker *kit.Worker
}

const (
	spentAtOnce = 32                    // a statement deletes no more than that
	spentFor    = 20 * time.Millisecond // how long one may wait for others
)

func (c *spentClaims) init(of config, life *kit.Life) {
	c.config = of
	c.worker = kit.NewWorker(life, func() time.Duration { return c.clear(life.Ctx) })
}

// add adds a claim.
func (c *spentClaims) add(id driver.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids = append(c.ids, id)
	switch len(c.ids) {
	case 1:
		c.since = time.Now()
		c.worker.Wake()
	case spentAtOnce:
		c.worker.Wake()
	}
}

// next returns claims to delete now, or how long to wait for them.
func (c *spentClaims) next() (ids []driver.ID, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch left := spentFor - time.Since(c.since); {
	case len(c.ids) == 0:
		return nil, -1
	case len(c.ids) < spentAtOnce && left > 0:
		return nil, left
	}
	n := min(len(c.ids), spentAtOnce)
	ids, c.ids = c.ids[:n:n], c.ids[n:]
	return ids, 0
}

// clear deletes spent claims, and returns when to do so again.
func (c *spentClaims) clear(ctx context.Context) time.Duration {
	ids, wait := c.next()
	if wait != 0 {
		return wait
	}
	_ = c.delete(ctx, ids...) // otherwise they are swept
	return 0
}

// delete deletes spent claims in one statement.
func (c *spentClaims) delete(ctx context.Context, ids ...driver.ID) error {
	var values []any
	for _, id := range ids {
		values = append(values, []byte(id.Key), id.Owner[:])
	}
	among := strings.TrimPrefix(strings.Repeat(" OR (lock_key = ? AND owner = ?)", len(ids)), " OR ")
	_, err := c.exec(ctx, c.d.text(`DELETE c FROM lockaround_claim c FORCE INDEX (PRIMARY) WHERE {alone} AND expires_us = 0 AND (`+among+`)`, values...))
	return err
}
