package reference_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol/reference"
)

// That it follows the rules is shown against the scripts, in package protocol.

func TestServerForgetsALockLongAfterItsLease(t *testing.T) {
	at := time.UnixMicro(1_700_000_000_000_000)
	s := reference.New(func() time.Time { return at })
	acquire := func(o driver.Owner) protocol.AcquireReply {
		t.Helper()
		v, _, err := s.Run("acquire", "k", protocol.AcquireArgs{Owner: o, Channel: "c", Length: time.Second, PlaceTTL: time.Second, Create: true}.Args())
		if err != nil {
			t.Fatal(err)
		}
		r, err := protocol.ParseAcquire(v)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	acquire(driver.Owner{1})
	at = at.Add(time.Second + protocol.Linger - time.Millisecond)
	if r := acquire(driver.Owner{1}); r.Status != protocol.Over {
		t.Errorf("before its time the lock is forgotten: %+v", r)
	}
	at = at.Add(protocol.Linger)
	if r := acquire(driver.Owner{1}); r.Status != protocol.Granted {
		t.Errorf("after its time the lock is remembered: %+v", r)
	}
}

func TestFlushedServerKnowsNothing(t *testing.T) {
	at := time.UnixMicro(1_700_000_000_000_000)
	s := reference.New(func() time.Time { return at })
	args := protocol.AcquireArgs{Owner: driver.Owner{1}, Channel: "c", Length: time.Second, PlaceTTL: time.Second, Create: true}.Args()
	if _, _, err := s.Run("acquire", "k", args); err != nil {
		t.Fatal(err)
	}
	s.Flush()
	v, _, err := s.Run("inspect", "k", nil)
	if r, perr := protocol.ParseInspect(v); err != nil || perr != nil || !reflect.DeepEqual(r, protocol.InspectReply{}) {
		t.Errorf("%+v, %v, %v", r, err, perr)
	}
}

func TestWrongArgumentsChangeNothing(t *testing.T) {
	s := reference.New(time.Now)
	for script, args := range map[string][]any{
		"acquire": {"o", "c", "x", "cw"},
		"end":     {"o"},
		"renew":   {"o", -1.5, int64(0)},
		"nothing": nil,
	} {
		if v, _, err := s.Run(script, "k", args); err == nil {
			t.Errorf("%s %v answers %v", script, args, v)
		}
	}
	if st := s.State("k"); st.Token != 0 || len(st.Holders) != 0 {
		t.Errorf("%+v", st)
	}
}
