package redislock_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/internal/suites"
	"github.com/lockaround/lockaround/core/redislock"
)

func TestErrorsOfOtherDriversNameThisOneForWhatItOffers(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	defer func() { _ = client.Close() }() // it was not used
	suites.Offers(t, redislock.New(client))
}
