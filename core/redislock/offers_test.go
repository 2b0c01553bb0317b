package redislock_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/internal/offertest"
	"github.com/lockaround/lockaround/core/redislock"
)

func TestErrorsOfOtherDriversNameThisOneForWhatItOffers(t *testing.T) {
	offertest.Check(t, redislock.New(redis.NewClient(&redis.Options{})))
}
