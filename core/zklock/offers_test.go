package zklock_test

import (
	"testing"

	"github.com/lockaround/lockaround/core/internal/suites"
	"github.com/lockaround/lockaround/core/zklock"
)

func TestErrorsOfOtherDriversNameThisOneForWhatItOffers(t *testing.T) {
	suites.Offers(t, zklock.New([]string{"127.0.0.1:2181"}))
}
