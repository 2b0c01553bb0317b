package sqllock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/lab/internal/server"
	"github.com/lockaround/lockaround/core/sqllock"
)

// pooled is server.Notifications through a transaction pooler, which has the LISTEN go to a connection that is
// somebody else's right after.
type pooled struct{ server.Notifications }

func (p pooled) Listen(ctx context.Context, channel string, ready func(), notify func(string)) error {
	return p.Notifications.Listen(ctx, channel+"_of_another", ready, notify)
}

// TestNotificationsThatDoNotComeAreToldOnPostgreSQL has a waiter served as soon as without notifications.
func TestNotificationsThatDoNotComeAreToldOnPostgreSQL(t *testing.T) {
	t.Parallel()
	for _, product := range products {
		if product.dialect != sqllock.PostgreSQL {
			continue
		}
		d := product.database(t, product.server.Shared(t))
		locks := d.locks(t, d.DB, sqllock.WithNotifications(pooled{server.Notifications{Source: d.SourceAt(d.On.Addr())}}))
		p, q := openWith(t, locks, 3*time.Second), open(t, d.locks(t, d.DB))
		eventually(t, "a ping that says that notifications do not come", func() bool {
			err := p.Ping(t.Context()) // before it is known, another one
			return errors.As(err, new(*driver.PermanentError)) && strings.Contains(err.Error(), "transaction pooler")
		})
		held, err := q.Acquire(t.Context(), request("k", false))
		if err != nil {
			t.Fatal(err)
		}
		granted := make(chan error, 1)
		go func() {
			g, err := p.Acquire(t.Context(), request("k", true))
			if err == nil {
				err = p.Release(t.Context(), []driver.Ending{ending(g)})[0]
			}
			granted <- err
		}()
		<-p.sink.queued
		if err := q.Release(t.Context(), []driver.Ending{ending(held)})[0]; err != nil {
			t.Fatal(err)
		}
		if err := <-granted; err != nil {
			t.Error(err)
		}
	}
}

// TestNotificationsThatComePassThePingOnPostgreSQL is the same for a connection to the server itself.
func TestNotificationsThatComePassThePingOnPostgreSQL(t *testing.T) {
	t.Parallel()
	for _, product := range products {
		if product.dialect == sqllock.PostgreSQL {
			d := product.database(t, product.server.Shared(t))
			p := open(t, d.locks(t, d.DB, sqllock.WithNotifications(server.Notifications{Source: d.SourceAt(d.On.Addr())})))
			if err := p.Ping(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestPoolThatHasNoConnectionLeftIsNamed is what happens to those who use the locks' pool themselves.
func TestPoolThatHasNoConnectionLeftIsNamed(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		p := openWith(t, d.locks(t, d.DB), time.Second)
		g, err := p.Acquire(t.Context(), request("k", false))
		if err != nil {
			t.Fatal(err)
		}
		d.DB.SetMaxOpenConns(1)
		used, err := d.DB.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = p.Renew(t.Context(), []driver.Renewal{{ID: g.ID, TTL: longTTL}})[0].Err
		if err == nil || !strings.Contains(err.Error(), "all 1 connections of the *sql.DB are in use") {
			t.Errorf("a renewal without a connection: %v", err)
		}
		if err := used.Close(); err != nil {
			t.Error(err)
		}
		d.DB.SetMaxOpenConns(0)
		if err := p.Release(t.Context(), []driver.Ending{ending(g)})[0]; err != nil {
			t.Error(err)
		}
	})
}
