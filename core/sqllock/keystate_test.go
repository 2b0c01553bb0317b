package sqllock

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lockaround/lockaround/core/driver"
)

// heldBy returns the state of a key with a holder for each of rooms.
func heldBy(rooms ...int32) *keyState {
	k := &keyState{}
	for i, r := range rooms {
		k.claims = append(k.claims, claim{owner: driver.Owner{byte(i + 1)}, state: holds, turn: noTurn, room: r})
	}
	return k
}

func TestLeaseFitsIfFewerHoldThanItsRoomAndEveryHoldersRoom(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rooms []int32
		room  int32
		want  bool
	}{
		{"a free key takes a writer", nil, 1, true},
		{"a free key takes a reader", nil, 0, true},
		{"a writer beside nobody else", []int32{1}, 1, false},
		{"no reader beside a writer", []int32{1}, 0, false},
		{"no writer beside a reader", []int32{0}, 1, false},
		{"readers beside readers", []int32{0, 0, 0}, 0, true},
		{"a permit within the limit", []int32{3, 3}, 3, true},
		{"no permit beyond the limit", []int32{3, 3, 3}, 3, false},
		{"no large permit beyond a small one", []int32{2, 5}, 5, false},
		{"no small permit beside as many", []int32{5, 5}, 2, false},
		{"a reader counts for a permit", []int32{0, 2}, 0, false},
		{"a permit beside a reader", []int32{0}, 2, true},
	} {
		if got := heldBy(tt.rooms...).fits(tt.room); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func TestTokensRiseWhateverTheClockDoes(t *testing.T) {
	k := &keyState{floorToken: 500}
	var last int64
	for range 1000 {
		k.now = rand.Int64N(1000) // the clock is set back half of the time
		token := k.nextToken()
		if token <= last || token <= k.floorToken {
			t.Fatalf("token %d at %d, after %d and above a floor of %d", token, k.now, last, k.floorToken)
		}
		last = token
		o := driver.Owner{1}
		k.claims = append(k.claims, claim{owner: o, state: holds, turn: noTurn, token: token})
		if rand.IntN(2) == 0 {
			k.dropClaim(o)
		}
		k.claims = nil // as if the claim was removed later
		k.token = max(k.token, token)
	}
}

func TestQueueIsInTheOrderOfItsTurns(t *testing.T) {
	k := heldBy(1)
	for _, turn := range []int64{7, 3, 5} {
		k.claims = append(k.claims, claim{owner: driver.Owner{byte(10 + turn)}, turn: turn})
	}
	k.sortClaims()
	if h := k.head(); h == nil || h.turn != 3 || k.countWaiting() != 3 || k.lastTurn() != 7 {
		t.Errorf("the head is %+v of %d, the last turn %d", h, k.countWaiting(), k.lastTurn())
	}
	if last := k.claims[3]; last.state != holds || last.turn != math.MaxInt64 {
		t.Errorf("the holder is not behind the queue: %+v", last)
	}
}

func TestLatestEndedOwnersAreRemembered(t *testing.T) {
	k := &keyState{}
	for i := range 3 * maxRememberedEnds {
		o := driver.Owner{byte(i)}
		k.rememberEnded(o)
		k.rememberEnded(o)
		for j := range i + 1 {
			if got, want := k.isEnded(driver.Owner{byte(j)}), j > i-maxRememberedEnds; got != want {
				t.Fatalf("after %d ended, owner %d is remembered: %v", i+1, j, got)
			}
		}
	}
	if len(k.ended) != maxRememberedEnds*16 {
		t.Errorf("%d bytes are kept", len(k.ended))
	}
}

func TestModeIsTheInverseOfRoom(t *testing.T) {
	for _, tt := range []struct {
		mode  driver.Mode
		limit int
	}{{driver.Exclusive, 0}, {driver.Shared, 0}, {driver.Semaphore, 7}} {
		if m, l := mode(room(tt.mode, tt.limit)); m != tt.mode || l != tt.limit {
			t.Errorf("%v of %d became %v of %d", tt.mode, tt.limit, m, l)
		}
	}
}
