package memlock_test

import (
	"testing"

	"github.com/lockaround/lockaround/core/internal/offertest"
	"github.com/lockaround/lockaround/core/memlock"
)

func TestErrorsOfOtherDriversNameThisOneForWhatItOffers(t *testing.T) {
	offertest.Check(t, memlock.New())
}
