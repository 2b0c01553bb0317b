package redlock_test

import (
	"testing"

	"github.com/lockaround/lockaround/core/internal/offertest"
	"github.com/lockaround/lockaround/core/redlock"
)

func TestErrorsOfOtherDriversNameThisOneForWhatItOffers(t *testing.T) {
	offertest.Check(t, redlock.New(nil))
}
