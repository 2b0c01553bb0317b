package server

import (
	"context"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// requestsOfRedis counts commands, also those that scripts run: Redis does not tell them apart.
func requestsOfRedis(ctx context.Context, addr string) (int64, error) {
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close() //nolint:errcheck // what it was asked it has answered
	text, err := c.Info(ctx, "stats").Result()
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(text, "total_commands_processed:")
	n, _, _ := strings.Cut(rest, "\r\n")
	return strconv.ParseInt(n, 10, 64)
}
