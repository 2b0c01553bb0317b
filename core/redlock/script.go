package redlock

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1.
	"embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// script is one operation in a node.
type script struct {
	source string
	sha    string // for EVALSHA
}

//go:embed scripts/*.lua
var sources embed.FS

var scripts = func() map[operation]script {
	all := make(map[operation]script)
	prelude := mustRead("prelude")
	for _, op := range []operation{opVote, opAccept, opYield, opRenew, opEnd, opOust, opInspect} {
		all[op] = newScript(prelude + mustRead(string(op)))
	}
	all[opProbe] = newScript(mustRead(string(opProbe)))
	return all
}()

func mustRead(name string) string {
	b, err := sources.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic("redlock: a script is not embedded: " + err.Error()) // a mistake of the build
	}
	return string(b)
}

func newScript(source string) script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see above
	return script{source: source, sha: hex.EncodeToString(sum[:])}
}

// KeyPrefix begins the name of every Redis key and of every Pub/Sub channel. Grant a
// user of an ACL "~lr1:*" and "&lr1:*". It holds the version of the protocol: another
// version would not exclude this one.
const KeyPrefix = "lr1:"

// The keys of a node. What follows the prefix is the lock's key as it is: no two
// prefixes begin alike.
const (
	hashPrefix  = KeyPrefix + "l:"
	queuePrefix = KeyPrefix + "q:"
	bootKey     = KeyPrefix + "boot"
)

// arguments returns what follows the script's name or source.
func (c *command) arguments() []any {
	args := []any{3, hashPrefix + c.key, queuePrefix + c.key, bootKey}
	switch c.op {
	case opVote:
		old := ""
		if c.old != nil {
			old = string(c.old[:])
		}
		args = append(args, string(c.owner[:]), c.channel, millis(c.ttl), millis(c.placeTTL), c.ticket, flag(c.wait), old, millis(c.restartDelay), c.token)
		if c.trace != nil {
			args = append(args, string(c.trace.Append(nil)))
		}
		return args
	case opAccept:
		return append(args, string(c.owner[:]), c.channel, millis(c.ttl), c.token, flag(c.create))
	case opYield:
		return append(args, string(c.owner[:]), c.token)
	case opRenew:
		return append(args, string(c.owner[:]), millis(c.ttl), c.token)
	case opEnd:
		return append(args, string(c.owner[:]), millis(c.keep))
	case opOust:
		return append(args, c.token)
	case opProbe:
		return append(args, c.channel)
	}
	return args
}

// millis rounds up: a lease lasts at least as long as was asked.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// parseAnswer reads a script's reply.
func parseAnswer(op operation, value any) (answer, error) {
	var a answer
	list, ok := value.([]any)
	if !ok {
		return a, fmt.Errorf("%w: %T instead of a list", errMalformed, value)
	}
	words := make([]string, len(list))
	for i, v := range list {
		if words[i], ok = v.(string); !ok {
			return a, fmt.Errorf("%w: %T in the list", errMalformed, v)
		}
	}
	if op == opProbe {
		if len(words)%2 != 0 {
			return a, fmt.Errorf("%w: %d words", errMalformed, len(words))
		}
		a.failure = words
		return a, nil
	}
	want := 13
	if op == opInspect {
		want = 18
	}
	if len(words) != want {
		return a, fmt.Errorf("%w: %d words instead of %d", errMalformed, len(words), want)
	}
	p := reader{}
	a = answer{
		status:   status(words[0]),
		accepted: p.number(words[1]),
		token:    p.number(words[2]),
		ticket:   p.number(words[3]),
		clock:    p.number(words[4]),
		left:     p.millis(words[5]),
		waiting:  int(p.number(words[6])),
		first:    words[7] == "1",
		firm:     words[8] == "1",
		ousted:   p.number(words[9]),
		boot:     p.number(words[10]),
		taker:    taker{channel: words[11], trace: words[12]},
	}
	if op == opInspect {
		a.accepted = p.number(words[14])
		a.since = time.UnixMilli(p.number(words[15]))
		a.held, a.kept = words[13] != "", words[16] == "1"
		if a.held && !a.kept {
			p.owner(&a.holder, words[13])
		}
		for o := range slices.Chunk([]byte(words[17]), len(driver.Owner{})) {
			a.queue = append(a.queue, driver.Owner{})
			p.owner(&a.queue[len(a.queue)-1], string(o))
		}
	}
	return a, p.err
}

// reader reads numbers that are at least 0 and below 2^53, and owners, and keeps the
// first error.
type reader struct{ err error }

func (p *reader) number(word string) int64 {
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil || n < 0 || n >= 1<<53 {
		if p.err == nil {
			p.err = fmt.Errorf("%w: a word that is no number from 0 to 2^53-1", errMalformed)
		}
		return 0
	}
	return n
}

func (p *reader) owner(o *driver.Owner, word string) {
	if len(word) != len(o) {
		p.err = fmt.Errorf("%w: an owner of %d bytes", errMalformed, len(word))
		return
	}
	copy(o[:], word)
}

func (p *reader) millis(word string) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(p.number(word), most)) * time.Millisecond
}
