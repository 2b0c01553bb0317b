package redistest

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Refuse has servers refuse what writes, until restore is called. Their error begins with cause.
func Refuse(t testing.TB, servers ...*redis.Client) (cause string, restore func()) {
	t.Helper()
	replicas := func(n string) {
		for _, c := range servers {
			if err := c.ConfigSet(context.Background(), "min-replicas-to-write", n).Err(); err != nil { // t's context may be over
				t.Error(err)
			}
		}
	}
	replicas("1")
	return "NOREPLICAS", func() { replicas("0") }
}
