package etcdlock_test

import (
	"testing"

	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/internal/offertest"
)

func TestErrorsOfOtherDriversNameThisOneForWhatItOffers(t *testing.T) {
	offertest.Check(t, etcdlock.New(nil))
}
