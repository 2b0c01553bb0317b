package redislock_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/internal/offertest"
	"github.com/lockaround/lockaround/core/redislock"
)

func TestErrorsOfOtherDriversNameThisOneForWhatItOffers(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	defer func() { _ = client.Close() }() // it was not used
	offertest.Check(t, redislock.New(client))
}
