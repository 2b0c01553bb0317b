package protocol_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol/reference"
)

func list(v ...any) any { return v }

func TestRepliesAreReadWholeOrRefused(t *testing.T) {
	acquire := func(v any) (any, error) { return protocol.ParseAcquire(v) }
	end := func(v any) (any, error) { return protocol.ParseEnd(v) }
	renew := func(v any) (any, error) { return protocol.ParseRenew(v) }
	inspect := func(v any) (any, error) { return protocol.ParseInspect(v) }
	oust := func(v any) (any, error) { return protocol.ParseOust(v) }
	drawn := func(v any) (any, error) {
		d, err := protocol.ParseDrawn(v)
		return d.Token(), err
	}
	n := func(n int) any { return int64(n) }
	for _, tt := range []struct {
		parse func(any) (any, error)
		in    any
		want  any // nil: refused
	}{
		{acquire, list("granted", "7", n(2), n(0), n(30000), n(0), "", ""), protocol.AcquireReply{Status: protocol.Granted, Token: 7, Waiting: 2, Left: 30 * time.Second}},
		{acquire, list("queued", "7", n(1), n(1), n(5), n(1), "", ""), protocol.AcquireReply{Status: protocol.Queued, Token: 7, Waiting: 1, Head: true, Left: 5 * time.Millisecond, More: true}},
		{acquire, list("over", "0", n(0), n(0), n(0), n(0), "", ""), protocol.AcquireReply{Status: protocol.Over}},
		{acquire, list("busy", "9007199254740991", n(0), n(0), n(0), n(0), "", ""), protocol.AcquireReply{Status: protocol.Busy, Token: 1<<53 - 1}},
		{acquire, list("busy", "7", n(0), n(0), n(0), n(0), "channel", "trace"), protocol.AcquireReply{Status: protocol.Busy, Token: 7, Taker: protocol.Taker{Channel: "channel", Trace: "trace"}}},
		{acquire, list("full", "7", n(3), n(0), n(0), n(0), "channel", ""), protocol.AcquireReply{Status: protocol.Full, Token: 7, Waiting: 3, Taker: protocol.Taker{Channel: "channel"}}},
		{acquire, list("busy", "7", n(0), n(0), n(0), n(0), n(1), ""), nil},
		{acquire, list("busy", "7", n(0), n(0), n(0), n(0)), nil},
		{acquire, list("granted", "0", n(0), n(0), n(0), n(0), "", ""), protocol.AcquireReply{Status: protocol.Granted}},
		{acquire, list("granted", "07", n(0), n(0), n(0), n(0), "", ""), nil},
		{acquire, list("granted", "-7", n(0), n(0), n(0), n(0), "", ""), nil},
		{acquire, list("granted", "1e15", n(0), n(0), n(0), n(0), "", ""), nil},
		{acquire, list("granted", "9007199254740992", n(0), n(0), n(0), n(0), "", ""), nil},
		{acquire, list("granted", n(7), n(0), n(0), n(0), n(0), "", ""), nil},
		{acquire, list("granted", "7", n(-1), n(0), n(0), n(0), "", ""), nil},
		{acquire, list("granted", "7", n(0), n(2), n(0), n(0), "", ""), nil},
		{acquire, list("granted", "7", n(0), n(0), int64(1)<<62, n(0), "", ""), nil},
		{acquire, list("granted", "7", n(0), n(0), nil, n(0), "", ""), nil},
		{acquire, list("granted", "7", n(0), n(0), n(0), "", ""), nil},
		{acquire, list("granted", "7", n(0), n(0), n(0), n(0), n(0), "", ""), nil},
		{acquire, list("ended", "7", n(0), n(0), n(0), n(0), "", ""), nil},
		{acquire, list("", "7", n(0), n(0), n(0), n(0), "", ""), nil},
		{acquire, list(nil, "7", n(0), n(0), n(0), n(0), "", ""), nil},
		{acquire, "7", protocol.AcquireReply{Status: protocol.Granted, Token: 7}},
		{acquire, "9007199254740991", protocol.AcquireReply{Status: protocol.Granted, Token: 1<<53 - 1}},
		{acquire, "9007199254740992", nil},
		{acquire, "0", protocol.AcquireReply{Status: protocol.Granted}},
		{acquire, "07", nil},
		{acquire, "", nil},
		{acquire, n(7), nil},
		{acquire, "granted", nil},
		{acquire, nil, nil},
		{acquire, errors.New("granted"), nil},
		{end, list("ended", "7", n(0), n(0), "", n(0), n(0), "0", "", ""), protocol.EndReply{Status: protocol.Ended, Token: 7}},
		{end, list("ended", "7", n(0), n(0), "granted", n(0), n(9), "0", "", ""), protocol.EndReply{Status: protocol.Ended, Token: 7, Next: protocol.Granted, Left: 9 * time.Millisecond}},
		{end, list("absent", "0", n(0), n(1), "", n(0), n(0), "0", "", ""), protocol.EndReply{Status: protocol.Absent, More: true}},
		{end, list("notmine", "7", n(0), n(0), "granted", n(0), n(0), "0", "", ""), nil},
		{end, list("ended", "0", n(0), n(0), "granted", n(0), n(0), "0", "", ""), protocol.EndReply{Status: protocol.Ended, Next: protocol.Granted}},
		{drawn, "1700000000123-45", int64(1700000000123045)},
		{drawn, "1700000000123-999", int64(1700000000123999)},
		{drawn, "1700000000123-1000", int64(0)}, // none is left of that ms
		{drawn, "9007199254739-999", int64(9007199254739999)},
		{drawn, "9007199254740-0", nil},
		{drawn, "0-1", nil},
		{drawn, "1700000000123", nil},
		{drawn, "1700000000123-", nil},
		{drawn, "-1", nil},
		{drawn, "a-b", nil},
		{drawn, n(1), nil},
		{drawn, nil, nil},
		{end, list("ended", "7", n(0), n(0), "busy", n(0), n(0), "0", "", ""), nil},
		{end, list("notmine", "7", n(0), n(0), "", n(0), n(0), "5", "", ""), protocol.EndReply{Status: protocol.NotMine, Token: 7, Ousted: 5}},
		{end, list("notmine", "7", n(0), n(0), "", n(0), n(0), "", ""), nil},
		{end, list("ended", "7", n(1), n(0), "queued", n(1), n(9), "0", "channel", "trace"), protocol.EndReply{
			Status: protocol.Ended, Token: 7, Waiting: 1, Next: protocol.Queued, Head: true, Left: 9 * time.Millisecond, Taker: protocol.Taker{Channel: "channel", Trace: "trace"},
		}},
		{end, n(1), protocol.EndReply{Status: protocol.Ended}},
		{end, n(0), nil},
		{end, "1", nil},
		{end, "ended", nil},
		{renew, "7", protocol.RenewReply{Status: protocol.Renewed, Token: 7}},
		{renew, "0", nil},
		{renew, "ok", nil},
		{inspect, "7", nil},
		{oust, "7", nil},
		{renew, list("ok", "7", n(3)), protocol.RenewReply{Status: protocol.Renewed, Token: 7, Waiting: 3}},
		{renew, list("lost", "0", n(0)), protocol.RenewReply{Status: protocol.Lost}},
		{renew, list("ok", "0", n(0)), nil},
		{inspect, list(n(0), "0", n(0), n(0), list()), protocol.InspectReply{}},
		{inspect, list(n(1), "7", n(3), n(10), list(n(0), "6", n(10), n(0), "c", "t", n(4), "7", n(20), n(1), "", "")), protocol.InspectReply{
			Held: true, Token: 7, Waiting: 3, Left: 10 * time.Millisecond,
			Holders: []protocol.Holder{{Token: 6, Left: 10 * time.Millisecond, Taker: protocol.Taker{Channel: "c", Trace: "t"}}, {Room: 4, Token: 7, Left: 20 * time.Millisecond, Kept: true}},
		}},
		{inspect, list("1", "7", n(3), n(10), list(n(1), "7", n(10), n(0), "c", "")), nil},
		{inspect, list(n(1), "7", n(3), n(10), list()), nil},
		{inspect, list(n(0), "7", n(3), n(0), list(n(1), "7", n(10), n(0), "c", "")), nil},
		{inspect, list(n(0), "7", n(3), n(0), nil), nil},
		{inspect, list(n(1), "7", n(3), n(10), list(n(1), "7", n(10), "c", "")), nil},
		{inspect, list(n(1), "7", n(3), n(10), list(n(1), n(7), n(10), n(0), "c", "")), nil},
		{oust, list(n(2), "7", n(1), n(0)), protocol.OustReply{Ended: 2, Token: 7, Waiting: 1}},
		{oust, list(n(2), "7", n(1)), nil},
	} {
		got, err := tt.parse(tt.in)
		switch {
		case tt.want == nil && !errors.Is(err, protocol.ErrMalformed):
			t.Errorf("%q is read as %+v, %v", tt.in, got, err)
		case tt.want == nil && !reflect.ValueOf(got).IsZero():
			t.Errorf("%q is refused and gives %+v all the same", tt.in, got)
		case tt.want != nil && (err != nil || !reflect.DeepEqual(got, tt.want)):
			t.Errorf("%q is read as %+v, %v; want %+v", tt.in, got, err, tt.want)
		}
	}
}

func TestErrorsShowNothingOfWhatArrived(t *testing.T) {
	secret := "do-not-show-this"
	for _, in := range []any{secret, "7" + secret, list(secret, secret, secret, secret, secret, secret), list("granted", secret, int64(0), int64(0), int64(0), int64(0), "", ""), list("busy", "7", int64(0), int64(0), int64(0), secret, secret, secret)} {
		if _, err := protocol.ParseAcquire(in); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%v", err)
		}
	}
	if _, err := protocol.ParsePush("g" + secret + secret); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("%v", err)
	}
}

func TestPushesAreReadWholeOrRefused(t *testing.T) {
	o := name(3)
	for _, in := range []string{
		"", "g", "x" + o + "1:0:k", "g" + o, "g" + o + "1", "g" + o + "1:0", "g" + o + "1:0:", "g" + o + "0:0:k",
		"g" + o + "01:0:k", "g" + o + "1:-1:k", "g" + o + "9007199254740992:0:k", "g" + o[:15] + "1:0:k",
	} {
		if p, err := protocol.ParsePush(in); !errors.Is(err, protocol.ErrMalformed) || p != (protocol.Push{}) {
			t.Errorf("%q is read as %+v, %v", in, p, err)
		}
	}
	want := protocol.Push{Kind: protocol.PushWait, Owner: owner(3), Token: 12, Waiting: 4, Key: "la2:{a:1:2:b}"}
	if p, err := protocol.ParsePush("w" + o + "12:4:la2:{a:1:2:b}"); err != nil || p != want {
		t.Errorf("%+v, %v", p, err)
	}
	want = protocol.Push{Kind: protocol.PushEnds, Owner: owner(3), Left: 250 * time.Millisecond, Waiting: 4, Key: "la2:{a}"}
	if p, err := protocol.ParsePush("e" + o + "250:4:la2:{a}"); err != nil || p != want {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := protocol.ParsePush("e" + o + "9007199254740991:4:la2:{a}"); err != nil || p.Left != protocol.MaxPlaceTTL {
		t.Errorf("%+v, %v", p, err)
	}
}

func FuzzParsePush(f *testing.F) {
	f.Add("g" + name(1) + "1700000000000000:2:la2:{stock:7}")
	f.Add("w" + name(1) + "1:0:::")
	f.Add("e" + name(1) + "250:1:la2:{stock:7}")
	f.Add("")
	f.Fuzz(func(t *testing.T, in string) {
		p, err := protocol.ParsePush(in)
		if err != nil {
			if p != (protocol.Push{}) {
				t.Errorf("refused %q and returned %+v", in, p)
			}
			return
		}
		if (p.Token < 1) != (p.Kind == protocol.PushEnds) || (p.Left > 0) != (p.Kind == protocol.PushEnds) || p.Waiting < 0 || p.Key == "" || !strings.HasSuffix(in, ":"+p.Key) || in[1:1+len(driver.Owner{})] != string(p.Owner[:]) {
			t.Errorf("%q is read as %+v", in, p)
		}
	})
}

// FuzzParseReplies feeds all parsers lists whose elements are made of the input,
// and the input alone.
func FuzzParseReplies(f *testing.F) {
	f.Add("ssnnnnss", "granted", "7", int64(1))
	f.Add("ssnnsnnsss", "ended", "granted", int64(0))
	f.Add("nsnn", "1", "7", int64(1))
	f.Add("", "", "", int64(0))
	f.Add("a", "1700000000000000", "", int64(0))
	f.Add("b", "", "", int64(1))
	f.Fuzz(func(t *testing.T, shape, a, b string, n int64) {
		var list []any
		for _, c := range shape {
			switch c {
			case 's':
				list = append(list, a)
				a, b = b, a
			case 'n':
				list = append(list, n)
			case '0':
				list = append(list, int64(0))
			case 'l':
				list = append(list, []any{a, n})
			case 'e':
				list = append(list, errors.New(a))
			default:
				list = append(list, nil)
			}
		}
		var in any = list
		switch shape {
		case "a":
			in = a
		case "b":
			in = n
		}
		if r, err := protocol.ParseAcquire(in); err == nil {
			if r.Left < 0 || r.Waiting < 0 || r.Token < 0 {
				t.Errorf("%q is read as %+v", in, r)
			}
		}
		if r, err := protocol.ParseEnd(in); err == nil {
			if r.Left < 0 || r.Waiting < 0 || r.Token < 0 || r.Next == protocol.Granted && r.Status != protocol.Ended {
				t.Errorf("%q is read as %+v", in, r)
			}
		}
		if r, err := protocol.ParseRenew(in); err == nil && (r.Waiting < 0 || r.Token < 0 || r.Status == protocol.Renewed && r.Token == 0) {
			t.Errorf("%q is read as %+v", in, r)
		}
		if r, err := protocol.ParseInspect(in); err == nil && (r.Left < 0 || r.Token < 0) {
			t.Errorf("%q is read as %+v", in, r)
		}
		if d, err := protocol.ParseDrawn(in); err == nil && d.Token() < 0 {
			t.Errorf("%q is read as %+v", in, d)
		}
		if r, err := protocol.ParseOust(in); err == nil && (r.Ended < 0 || r.Token < 0) {
			t.Errorf("%q is read as %+v", in, r)
		}
	})
}

func TestArgumentsRoundTimesUp(t *testing.T) {
	a := protocol.AcquireArgs{Owner: owner(1), Channel: "c", Length: 10*time.Millisecond + 1, PlaceTTL: 10*time.Millisecond + 1, Create: true}
	if got, want := words(t, a.Args()), []string{name(1), "c", "11", "c"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	trace := &driver.Trace{TraceID: [16]byte{1}, SpanID: [8]byte{2}, Flags: 3}
	a.Trace = trace
	if got, want := words(t, a.Args()), []string{name(1), "c", "11", "c", string(trace.Append(nil))}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	a.Create = false // who is known has told its trace
	if got, want := words(t, a.Args()), []string{name(1), "c", "11", ""}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	a.Trace, a.Create = nil, true
	a.PlaceTTL++
	if got, want := words(t, a.Args()), []string{name(1), "c", "11", "c", "11", "1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestPrintedArgumentsShowNoOwner(t *testing.T) {
	next := &protocol.Next{Owner: owner(2), Channel: "c", Length: second, PlaceTTL: second}
	for _, args := range [][]any{
		append(protocol.TakeArgs{Owner: owner(1), Channel: "c", Length: second}.Args(), "(owner)"),
		protocol.AcquireArgs{Owner: owner(1), Channel: "c", Length: second, PlaceTTL: second}.Args(),
		protocol.EndArgs{Owner: owner(1), Next: next}.Args(),
		protocol.RenewArgs{Owner: owner(1), TTL: second}.Args(),
	} {
		for _, format := range []string{"%v", "%s", "%q", "%+v"} {
			if text := fmt.Sprintf(format, args); !strings.Contains(text, "(owner)") || strings.Contains(text, "owner-") {
				t.Errorf("printed by %s: %s", format, text)
			}
		}
	}
}

// words are arguments as a server sees them.
func words(t *testing.T, args []any) []string {
	t.Helper()
	out, err := reference.Words(args)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The value that Take sets is what the scripts read, and what a release by its value compares.
func TestValueOfALeaseSaysAllThatAWaiterNeeds(t *testing.T) {
	trace := &driver.Trace{TraceID: [16]byte{1}, SpanID: [8]byte{2}, Flags: 3}
	a := protocol.TakeArgs{Owner: owner(1), Channel: "la2:c", Length: 10*time.Millisecond + 1, Trace: trace}
	if got, want := words(t, a.Args()), []string{name(1) + "1:0:0:11:5:la2:c" + string(trace.Append(nil)), "11"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestStreamIsRaisedBeforeItsTokensOfAMsAreUsedUp(t *testing.T) {
	for id, want := range map[string]string{"1700000000123-499": "", "1700000000123-500": "1700000000124-0", "1700000000123-5000": "1700000000124-0"} {
		d, err := protocol.ParseDrawn(id)
		if err != nil || d.Raise() != want {
			t.Errorf("%s is raised to %q, %v; want %q", id, d.Raise(), err, want)
		}
	}
}

func TestPlaceInTheQueueLastsNoLongerThanTheTTL(t *testing.T) {
	if got := protocol.PlaceTTL(30 * time.Second); got != protocol.MaxPlaceTTL {
		t.Errorf("%v", got)
	}
	if got := protocol.PlaceTTL(time.Second); got != time.Second {
		t.Errorf("%v", got)
	}
}
