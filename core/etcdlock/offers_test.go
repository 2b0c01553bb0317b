package etcdlock_test

import (
	"testing"

	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/internal/suites"
)

func TestErrorsOfOtherDriversNameThisOneForWhatItOffers(t *testing.T) {
	suites.Offers(t, etcdlock.New(nil))
}
