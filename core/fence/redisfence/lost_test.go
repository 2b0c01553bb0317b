package redisfence_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/fence/redisfence"
	"github.com/lockaround/lockaround/core/testservers"
)

// deaf is a connection that loses the next reply when it is told to.
type deaf struct {
	net.Conn
	lose *atomic.Bool
}

func (d deaf) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p) // so that the server has done what it was asked for
	if d.lose.Swap(false) {
		_ = d.Close()
		return 0, io.ErrUnexpectedEOF // as it is, for go-redis to know it
	}
	return n, err
}

func TestScriptWhoseReplyIsLostRunsAgainUnderItsToken(t *testing.T) {
	addr := testservers.Redis(t).Addr()
	add := redisfence.NewScript(`return redis.call('INCRBY', KEYS[1], ARGV[1])`)
	for _, tc := range []struct {
		name    string
		retries int
		fails   bool
		left    string
	}{
		{"sent once", -1, true, "3"},
		{"sent again by go-redis", 1, false, "6"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var lose atomic.Bool
			rdb := redis.NewClient(&redis.Options{
				MaxRetries: tc.retries,
				Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
					c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
					return deaf{c, &lose}, err
				},
			})
			defer closeClient(t, rdb)
			if err := rdb.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			mustBe(t, add.Run(t.Context(), rdb, token("k", 7), []string{"r"}, 0).Err(), nil) // has the script known

			lose.Store(true)
			err := add.Run(t.Context(), rdb, token("k", 7), []string{"r"}, 3).Err()
			if (err != nil) != tc.fails || errors.Is(err, fence.ErrStale) {
				t.Errorf("the reply is lost: %v", err)
			}
			mustHold(t, rdb, "r", tc.left)
			mustBe(t, add.Run(t.Context(), rdb, token("k", 6), []string{"r"}, 3).Err(), fence.ErrStale)
			mustBe(t, add.Run(t.Context(), rdb, token("k", 7), []string{"r"}, 0).Err(), nil)
			mustHold(t, rdb, "r", tc.left)
		})
	}
}
