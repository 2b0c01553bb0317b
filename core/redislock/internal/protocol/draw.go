package protocol

import (
	"fmt"
	"strconv"
	"strings"
)

// Tokens are drawn from a stream, see [Stream], by XADD with an ID of *. Such an ID is the server's
// time in ms and a number. It rises also when the clock goes back, across a restart with
// persistence, and across a failover unless the new master's clock is behind. A token is the ms
// times 1,000, and the number: about the server's time in microseconds. A stream that is not there,
// since nobody has drawn or the server has lost its data, begins at a number by the microsecond: see [BeginStream].
const perMS = 1000

// Drawn is the ID of an entry of a stream.
type Drawn struct{ ms, number int64 }

// ParseDrawn reads the reply of XADD.
func ParseDrawn(reply any) (Drawn, error) {
	id, _ := reply.(string)
	ms, number, ok := strings.Cut(id, "-")
	var d Drawn
	var ok1, ok2 bool
	d.ms, ok1 = parseNumber(ms)
	d.number, ok2 = parseNumber(number)
	if !ok || !ok1 || !ok2 || d.ms == 0 || d.ms > maxToken/perMS-1 {
		return Drawn{}, fmt.Errorf("%w draw: %T that is no ID of a stream", ErrMalformed, reply)
	}
	return d, nil
}

// Token returns the token. It is 0, which is none, if all have been drawn in one ms of the
// stream, whose clock is behind: see [Drawn.Raise].
func (d Drawn) Token() int64 {
	if d.number >= perMS {
		return 0
	}
	return d.ms*perMS + d.number
}

// Raise returns the ID of an entry to be added to the stream, so that it goes on with the next ms.
// It is "" while there is no need.
func (d Drawn) Raise() string {
	if d.number < perMS/2 {
		return ""
	}
	return strconv.FormatInt(d.ms+1, 10) + "-0"
}
