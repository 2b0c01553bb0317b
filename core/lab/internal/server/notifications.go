package server

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Notifications receives PostgreSQL's notifications for sqllock and sqlqueue, by pgx.
type Notifications struct{ Source string }

// Listen implements sqllock.Notifications and sqlqueue.Notifications.
func (n Notifications) Listen(ctx context.Context, channel string, ready func(), notify func(string)) error {
	conn, err := pgx.Connect(ctx, n.Source)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it is broken, or has nothing under way
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
