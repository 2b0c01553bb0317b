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

func TestServerForgetsAnOwnerThatWasGivenUp(t *testing.T) {
	at := time.UnixMicro(1_700_000_000_000_000)
	s, key := reference.New(func() time.Time { return at }), protocol.Key("k")
	run := func(script string, args []any) any {
		t.Helper()
		v, _, err := s.Run(script, key, args)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	take := protocol.TakeArgs{Owner: driver.Owner{1}, Channel: "c", Length: time.Second}.Args()
	run("end", protocol.EndArgs{Owner: driver.Owner{1}, Bury: true}.Args())
	at = at.Add(protocol.Linger - time.Millisecond)
	if run("take", take) != int64(0) {
		t.Error("before its time the owner is forgotten")
	}
	at = at.Add(time.Millisecond)
	if run("take", take) != int64(1) {
		t.Error("after its time the owner is remembered")
	}
}

func TestFlushedServerKnowsNothing(t *testing.T) {
	at := time.UnixMicro(1_700_000_000_000_000)
	s := reference.New(func() time.Time { return at })
	args := protocol.AcquireArgs{Owner: driver.Owner{1}, Channel: "c", Length: time.Second, PlaceTTL: time.Second, Create: true}.Args()
	if _, _, err := s.Run("acquire", protocol.Key("k"), args); err != nil {
		t.Fatal(err)
	}
	s.Flush()
	v, _, err := s.Run("inspect", protocol.Key("k"), nil)
	if r, perr := protocol.ParseInspect(v); err != nil || perr != nil || !reflect.DeepEqual(r, protocol.InspectReply{}) {
		t.Errorf("%+v, %v, %v", r, err, perr)
	}
}

func TestWrongArgumentsChangeNothing(t *testing.T) {
	s := reference.New(time.Now)
	for script, args := range map[string][]any{
		"acquire": {"o", "c", "x", "cw"},
		"end":     {"o"},
		"renew":   {"o", -1.5, int64(0), int64(1)},
		"take":    {"o", int64(1)},
		"nothing": nil,
	} {
		if v, _, err := s.Run(script, protocol.Key("k"), args); err == nil {
			t.Errorf("%s %v answers %v", script, args, v)
		}
	}
	if st := s.State(protocol.Key("k")); st.Token != 0 || len(st.Holders) != 0 {
		t.Errorf("%+v", st)
	}
}
