package rediscache

import (
	_ "embed" // the scripts
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/internal/redispush"
)

var (
	//go:embed header.lua
	headerSource string
	//go:embed claim.lua
	claimSource string
	//go:embed put.lua
	putSource string
	//go:embed invalidate.lua
	invalidateSource string

	claimScript      = redispush.Script(headerSource + claimSource)
	putScript        = redispush.Script(headerSource + putSource)
	invalidateScript = redispush.Script(headerSource + invalidateSource)
)

// The header of an entry, as header.lua says.
const (
	claimedAt = 21
	endsAt    = 35
	ttlAt     = 49
	valueAt   = 63
)

var (
	errForeign = errors.New("the key holds something else; give the cache a prefix under which nothing else writes")
	errReply   = errors.New("the server's reply is none of the script's")
)

// tick is by how much the server's time may be ahead of what it says.
const tick = time.Millisecond

// parse returns the value of an entry. Its key had that long left at a moment before the
// entry was read, and the answer took some time to come since. The key expires when both
// value and claim have ended.
//
// The entry may have changed between the two. A claim in between can only have put the
// end of the key off, which makes what is returned less. A Put in between began a
// whole ttl after that moment or later.
func parse(raw []byte, left, took time.Duration) (cache.Entry, error) {
	if len(raw) < valueAt || raw[0] != '1' {
		return cache.Entry{}, errForeign
	}
	claimed, err := milliseconds(raw[claimedAt:endsAt])
	ends, err2 := milliseconds(raw[endsAt:ttlAt])
	ttl, err3 := milliseconds(raw[ttlAt:valueAt])
	if err != nil || err2 != nil || err3 != nil {
		return cache.Entry{}, errForeign
	}
	return living(raw[valueAt:], min(left-max(claimed-ends, 0), ttl), took), nil
}

func milliseconds(digits []byte) (time.Duration, error) {
	n, err := strconv.ParseUint(string(digits), 10, 63)
	return time.Duration(n) * time.Millisecond, err
}

// living is the entry of a value that had that long left, and took some time to come.
func living(value []byte, left, took time.Duration) cache.Entry {
	if left -= tick + took; left <= 0 {
		return cache.Entry{}
	}
	return cache.Entry{Value: value[:len(value):len(value)], Left: left}
}

// parseClaim reads the answer of claim.lua, which took some time to come.
func parseClaim(raw any, took time.Duration) (cache.Entry, error) {
	reply, _ := raw.([]any)
	switch {
	case len(reply) == 1 && reply[0] == int64(0):
		return cache.Entry{}, cache.ErrSuperseded
	case len(reply) == 1 && reply[0] == int64(1):
		return cache.Entry{}, nil
	case len(reply) == 3 && reply[0] == int64(1):
		left, isInt := reply[1].(int64)
		value, isString := reply[2].(string)
		if isInt && isString {
			return living([]byte(value), time.Duration(left)*time.Millisecond, took), nil
		}
	}
	return cache.Entry{}, errReply
}

// digits writes a token as the scripts compare it.
func digits(token int64) string { return fmt.Sprintf("%019d", token) }

// failure says what was being done when Redis failed.
func failure(doing string, err error) error {
	if strings.HasPrefix(err.Error(), "FOREIGN ") {
		err = errForeign
	}
	return fmt.Errorf("rediscache: %s: %w", doing, err)
}
