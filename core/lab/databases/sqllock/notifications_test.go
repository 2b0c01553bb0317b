package sqllock_test

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/lockaround/lockaround/core/sqllock"
)

// Notifications receives PostgreSQL's notifications with pgx.
type Notifications struct{ Source string }

var _ sqllock.Notifications = Notifications{}

// Listen implements sqllock.Notifications.
func (n Notifications) Listen(ctx context.Context, channel string, ready func(), notify func(string)) error {
	conn, err := pgx.Connect(ctx, n.Source)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	ready()
	for {
		got, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		notify(got.Payload)
	}
}
