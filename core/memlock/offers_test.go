package memlock_test

import (
	"testing"

	"github.com/lockaround/lockaround/core/internal/suites"
	"github.com/lockaround/lockaround/core/memlock"
)

func TestErrorsOfOtherDriversNameThisOneForWhatItOffers(t *testing.T) {
	suites.Offers(t, memlock.New())
}
