package redlock

import (
	"embed"
	"fmt"
	"slices"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
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
	opening, prelude := mustRead("opening"), mustRead("prelude")
	for _, op := range []operation{opVote, opAccept, opYield, opRenew, opEnd, opOust, opInspect} {
		fast := ""
		if op == opVote || op == opEnd {
			fast = mustRead(string(op) + "_fast")
		}
		all[op] = newScript(opening + fast + prelude + mustRead(string(op)))
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
	return script{source: source, sha: kit.ScriptName(source)}
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

// parseAnswer reads the reply to a command's script.
func parseAnswer(c *command, value any) (answer, error) {
	p := reader{}
	if us, ok := value.(int64); ok && c.op == opEnd {
		a := answer{status: statusEnded, clock: p.number(us), boot: bootUntold}
		return a, p.err
	}
	list, ok := value.([]any)
	if !ok {
		return answer{}, fmt.Errorf("%w: %T instead of a list", errMalformed, value)
	}
	if len(list) == 3 && c.op == opVote { // of the fast path
		a := answer{
			status: statusGranted, token: c.token, accepted: c.token, left: time.Duration(millis(c.ttl)) * time.Millisecond,
			clock: p.number(list[0]), ticket: p.number(list[1]), boot: p.number(list[2]),
		}
		return a, p.err
	}
	want := 12
	switch c.op {
	case opProbe:
		return parseProbe(list)
	case opInspect:
		want = 17
	case opEnd:
		want = 4
	}
	if len(list) != want {
		return answer{}, fmt.Errorf("%w: %d words instead of %d", errMalformed, len(list), want)
	}
	a := answer{status: status(p.text(list[0])), clock: p.number(list[1]), token: p.number(list[2])}
	if c.op == opEnd {
		a.boot, a.ousted = bootUntold, p.number(list[3])
		return a, p.err
	}
	a.accepted = p.number(list[3])
	a.ticket = p.number(list[4])
	a.left = p.millis(list[5])
	a.waiting = int(p.number(list[6]))
	a.first = p.number(list[7]) == 1
	a.firm = p.number(list[8]) == 1
	a.boot = p.number(list[9])
	a.taker = taker{channel: p.text(list[10]), trace: p.text(list[11])}
	if c.op == opInspect {
		holder := p.text(list[12])
		a.accepted = p.number(list[13])
		a.since = time.UnixMilli(p.number(list[14]))
		a.held, a.kept = holder != "", p.number(list[15]) == 1
		if a.held && !a.kept {
			p.owner(&a.holder, holder)
		}
		for o := range slices.Chunk([]byte(p.text(list[16])), len(driver.Owner{})) {
			a.queue = append(a.queue, driver.Owner{})
			p.owner(&a.queue[len(a.queue)-1], string(o))
		}
	}
	return a, p.err
}

// parseProbe reads pairs of words.
func parseProbe(list []any) (a answer, err error) {
	p := reader{}
	for _, word := range list {
		a.failure = append(a.failure, p.text(word))
	}
	if len(list)%2 != 0 {
		p.refuse("%d words", len(list))
	}
	return a, p.err
}

// reader reads texts, numbers that are at least 0 and below 2^53, and owners, and keeps the
// first error.
type reader struct{ err error }

func (p *reader) refuse(why string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: "+why, append([]any{errMalformed}, args...)...)
	}
}

func (p *reader) text(word any) string {
	s, ok := word.(string)
	if !ok {
		p.refuse("%T in the place of a word", word)
	}
	return s
}

func (p *reader) number(word any) int64 {
	n, ok := word.(int64)
	if !ok || n < 0 || n >= 1<<53 {
		p.refuse("no number from 0 to 2^53-1 in the place of one")
		return 0
	}
	return n
}

func (p *reader) millis(word any) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(p.number(word), most)) * time.Millisecond
}

func (p *reader) owner(o *driver.Owner, word string) {
	if len(word) != len(o) {
		p.refuse("an owner of %d bytes", len(word))
		return
	}
	copy(o[:], word)
}
