package sqllock_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/lab/internal/server"
	"github.com/lockaround/lockaround/core/sqllock"
)

// Sessions that hear of their turn by PostgreSQL's notifications, with pgx. Notifications
// is twenty lines: see notifications_test.go.
func ExampleWithNotifications() {
	const source = "postgres://app@127.0.0.1/shop"
	db, err := sql.Open("pgx", source)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	store, err := sqllock.New(db, sqllock.PostgreSQL, sqllock.WithNotifications(server.Notifications{Source: source}))
	if err != nil {
		fmt.Println(err)
		return
	}
	locks, err := core.New(store, core.WithNamespace("shop:prod"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	_ = locks.Do(context.Background(), core.Policy{Key: "report:daily"}, func(context.Context) error { return nil })
}
