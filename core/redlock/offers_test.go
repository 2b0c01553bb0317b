package redlock_test

import (
	"testing"

	"github.com/lockaround/lockaround/core/internal/suites"
	"github.com/lockaround/lockaround/core/redlock"
)

func TestErrorsOfOtherDriversNameThisOneForWhatItOffers(t *testing.T) {
	suites.Offers(t, redlock.New(nil))
}
