package protocol

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// ErrMalformed is wrapped by the errors of all parsers: what arrived was not
// written by this package's scripts.
var ErrMalformed = errors.New("malformed message from the lock's script")

// Status is a script's decision about one owner.
type Status uint8

// The decisions. The zero Status is none.
const (
	// Granted: the owner holds the lease, for Length from the script's run.
	Granted Status = iota + 1
	// Queued: the owner has a place in the queue, for PlaceTTL.
	Queued
	// Busy: the key is taken and the owner would not wait.
	Busy
	// Full: there is no room for the owner in the queue.
	Full
	// Over: the owner has ended, or is unknown and Create was not set.
	Over

	// Ended: this run of the script ended the owner's live lease.
	Ended
	// Withdrawn: this run of the script removed the owner from the queue.
	Withdrawn
	// NotMine: the owner neither held nor waited.
	NotMine
	// Absent: the owner neither held nor waited, and the server knows of no
	// grant of this key at all.
	Absent

	// Renewed: the lease lasts TTL from the script's run, or longer.
	Renewed
	// Lost: the owner does not hold the lease.
	Lost
)

var statusNames = [...]string{
	Granted: "granted", Queued: "queued", Busy: "busy", Full: "full", Over: "over",
	Ended: "ended", Withdrawn: "withdrawn", NotMine: "notmine", Absent: "absent",
	Renewed: "ok", Lost: "lost",
}

// String returns the status as scripts write it.
func (s Status) String() string {
	if s == 0 || int(s) >= len(statusNames) {
		return "none"
	}
	return statusNames[s]
}

// AcquireReply is what [Acquire] answers.
type AcquireReply struct {
	Status  Status // Granted, Queued, Busy, Full or Over
	Token   int64  // the owner's own if Granted, and 0 if one is to be drawn for it; else a token that the next is not less than
	Waiting int64  // entries in the queue, the owner's included
	Head    bool   // if Queued: the owner is the first in the queue

	// Left is how long the present lease lasts unless it is renewed; 0 if
	// there is none, and if Granted.
	Left time.Duration

	// More says that the script stopped before it had found an owner to grant the
	// free key to. Repeat the call at once.
	More bool

	// Taker is who holds the key, or one of those who do, if Queued, Busy or Full.
	Taker Taker
}

// Taker is what a script tells of who holds a key. Its zero value is nobody.
type Taker struct {
	Channel string // of the process's pushes
	Trace   string // of the request, as [driver.Trace.Append] writes it; empty if not known
}

// EndReply is what [End] answers.
type EndReply struct {
	Status  Status // Ended, Withdrawn, NotMine or Absent
	Token   int64  // as in AcquireReply, of Next; 0 if Ended with nobody next
	Waiting int64
	More    bool // as in AcquireReply

	// Next is what became of EndArgs.Next: Granted, Queued, or Over if it had
	// ended before. It is 0 if there was none or if Status is not Ended: then
	// an [Acquire] without Create tells.
	Next  Status
	Head  bool          // if Next is Queued
	Taker Taker         // as in AcquireReply, if Next is Queued
	Left  time.Duration // how long the present lease lasts unless it is renewed; 0 if there is none

	// Ousted is up to which token leases of the key have been taken from their
	// holders, if Status is NotMine; 0 if that never happened.
	Ousted int64
}

// RenewReply is what [Renew] answers.
type RenewReply struct {
	Status  Status // Renewed or Lost
	Token   int64  // the latest of the key: the owner's own if Renewed; 0 if there was no grant
	Waiting int64
}

// InspectReply is what [Inspect] answers.
type InspectReply struct {
	Held    bool  // also while the key is kept for MinHold
	Token   int64 // the latest that the server knows of the key; 0 if there is none
	Waiting int64
	Left    time.Duration // until the first of the leases is over
	Holders []Holder
}

// Holder is one lease that [Inspect] found.
type Holder struct {
	Room  int64 // how many may hold together: 1 if it is exclusive, 0 for any number
	Token int64 // as in InspectReply: until a lease has been renewed, its own may be greater by less than a second
	Left  time.Duration
	Kept  bool  // it has ended, but takes its place until MinHold is over
	Taker Taker // nobody if Kept
}

// Mode returns what the lease was asked for as. A semaphore of one is exclusive.
func (h Holder) Mode() (m driver.Mode, limit int) {
	switch h.Room {
	case 1:
		return driver.Exclusive, 0
	case 0:
		return driver.Shared, 0
	default:
		return driver.Semaphore, int(h.Room)
	}
}

// OustReply is what [Oust] answers.
type OustReply struct {
	Ended   int64 // leases
	Token   int64 // greater than those of the ended leases
	Waiting int64
	More    bool // as in AcquireReply
}

// The commonest replies are a token or a number alone: a list would cost the server more than
// most commands do.

// ParseAcquire reads the reply of [Acquire] as a Redis client returns it. A token
// alone says Granted, with nobody waiting.
func ParseAcquire(reply any) (AcquireReply, error) {
	if text, ok := reply.(string); ok {
		token, ok := parseNumber(text)
		if !ok {
			return AcquireReply{}, fmt.Errorf("%w acquire: text that is no token", ErrMalformed)
		}
		return AcquireReply{Status: Granted, Token: token}, nil
	}
	r := newReader("acquire", reply, 8)
	out := AcquireReply{
		Status: r.status(Granted, Queued, Busy, Full, Over), Token: r.token(), Waiting: r.count(),
		Head: r.flag(), Left: r.millis(), More: r.flag(), Taker: r.taker(),
	}
	if r.err != nil {
		return AcquireReply{}, r.err
	}
	return out, nil
}

// ParseEnd reads the reply of [End] as a Redis client returns it. A 1 alone says
// Ended, without a next owner, and that nobody waits or holds.
func ParseEnd(reply any) (EndReply, error) {
	if n, ok := reply.(int64); ok && n == 1 {
		return EndReply{Status: Ended}, nil
	}
	r := newReader("end", reply, 10)
	out := EndReply{
		Status: r.status(Ended, Withdrawn, NotMine, Absent), Token: r.token(), Waiting: r.count(),
		More: r.flag(), Next: r.status(0, Granted, Queued, Over), Head: r.flag(), Left: r.millis(), Ousted: r.token(), Taker: r.taker(),
	}
	switch {
	case out.Next != 0 && out.Status != Ended:
		r.fail("a next owner although none had ended")
	}
	if r.err != nil {
		return EndReply{}, r.err
	}
	return out, nil
}

// ParseRenew reads the reply of [Renew] as a Redis client returns it. A token alone
// says Renewed, with nobody waiting.
func ParseRenew(reply any) (RenewReply, error) {
	if text, ok := reply.(string); ok {
		token, ok := parseNumber(text)
		if !ok || token == 0 {
			return RenewReply{}, fmt.Errorf("%w renew: text that is no token", ErrMalformed)
		}
		return RenewReply{Status: Renewed, Token: token}, nil
	}
	r := newReader("renew", reply, 3)
	out := RenewReply{Status: r.status(Renewed, Lost), Token: r.token(), Waiting: r.count()}
	if out.Status == Renewed && out.Token == 0 {
		r.fail("a lease without a token")
	}
	if r.err != nil {
		return RenewReply{}, r.err
	}
	return out, nil
}

// ParseInspect reads the reply of [Inspect] as a Redis client returns it.
func ParseInspect(reply any) (InspectReply, error) {
	r := newReader("inspect", reply, 5)
	out := InspectReply{Held: r.flag(), Token: r.token(), Waiting: r.count(), Left: r.millis()}
	all, ok := r.take().([]any)
	if !ok || len(all)%6 != 0 || (len(all) == 0) == out.Held {
		r.fail("leases that do not add up")
	}
	for r.rest = all; r.err == nil && len(r.rest) > 0; {
		out.Holders = append(out.Holders, Holder{Room: r.count(), Token: r.token(), Left: r.millis(), Kept: r.flag(), Taker: r.taker()})
	}
	if r.err != nil {
		return InspectReply{}, r.err
	}
	return out, nil
}

// ParseOust reads the reply of [Oust] as a Redis client returns it.
func ParseOust(reply any) (OustReply, error) {
	r := newReader("oust", reply, 4)
	out := OustReply{Ended: r.count(), Token: r.token(), Waiting: r.count(), More: r.flag()}
	if r.err != nil {
		return OustReply{}, r.err
	}
	return out, nil
}

// maxToken is the largest token that Lua's doubles count exactly, and with it
// the largest number in any message.
const maxToken = 1<<53 - 1

// reader reads a reply's elements in order and keeps the first error.
type reader struct {
	script string
	rest   []any
	err    error
}

func newReader(script string, reply any, n int) *reader {
	r := &reader{script: script}
	list, ok := reply.([]any)
	switch {
	case !ok:
		r.fail(fmt.Sprintf("%T instead of a list", reply))
	case len(list) != n:
		r.fail(fmt.Sprintf("%d elements instead of %d", len(list), n))
	default:
		r.rest = list
	}
	return r
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w %s: %s", ErrMalformed, r.script, what)
	}
	r.rest = nil
}

func (r *reader) take() any {
	if len(r.rest) == 0 {
		return nil
	}
	v := r.rest[0]
	r.rest = r.rest[1:]
	return v
}

// status accepts the name of an allowed status; 0 stands for the empty name.
func (r *reader) status(allowed ...Status) Status {
	v := r.take()
	if r.err != nil {
		return 0
	}
	s, ok := v.(string)
	if ok {
		for _, a := range allowed {
			if a == 0 && s == "" || a != 0 && s == statusNames[a] {
				return a
			}
		}
	}
	r.fail("an unknown status")
	return 0
}

// token reads a token. It is text, since a reply's numbers are converted to doubles.
func (r *reader) token() int64 {
	v := r.take()
	if r.err != nil {
		return 0
	}
	s, ok := v.(string)
	if !ok {
		r.fail("a token that is not text")
		return 0
	}
	n, ok := parseNumber(s)
	if !ok {
		r.fail("a token out of range")
	}
	return n
}

func (r *reader) taker() Taker { return Taker{Channel: r.text(), Trace: r.text()} }

func (r *reader) text() string {
	v := r.take()
	if r.err != nil {
		return ""
	}
	s, ok := v.(string)
	if !ok {
		r.fail("a name that is not text")
	}
	return s
}

func (r *reader) count() int64 {
	v := r.take()
	if r.err != nil {
		return 0
	}
	n, ok := v.(int64)
	if !ok || n < 0 || n > maxToken {
		r.fail("a number out of range")
		return 0
	}
	return n
}

func (r *reader) flag() bool {
	n := r.count()
	if n > 1 {
		r.fail("a flag that is neither 0 nor 1")
	}
	return n == 1
}

func (r *reader) millis() time.Duration {
	n := r.count()
	if n > int64(longest/time.Millisecond) {
		r.fail("a time out of range")
		return 0
	}
	return time.Duration(n) * time.Millisecond
}

const longest time.Duration = 1<<63 - 1

// parseNumber reads a plain decimal number, as '%.0f' writes it.
func parseNumber(s string) (int64, bool) {
	if s == "" || len(s) > len("9007199254740991") || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		digit := s[i] - '0'
		if digit > 9 {
			return 0, false
		}
		n = 10*n + int64(digit)
	}
	return n, n <= maxToken
}

// PushKind says what a push reports.
type PushKind uint8

// The kinds of push.
const (
	// PushGrant: Owner, which waited, holds the lease.
	PushGrant PushKind = 'g'
	// PushWait: another owner asks for the key that Owner holds.
	PushWait PushKind = 'w'
	// PushLost: Owner's lease was taken from it.
	PushLost PushKind = 'l'
	// PushEnds: Owner is the first to wait for the key, and the present lease, or the time for
	// which the key is kept, ends in Left unless it is renewed. Earlier versions of this
	// module do not send it, and ignore it.
	PushEnds PushKind = 'e'
)

// Push is a message to a process's channel. It contains the owner, which is secret, so that
// nobody else can make a waiter believe that it holds the key.
type Push struct {
	Kind    PushKind
	Key     string // as [Key] returned it
	Owner   driver.Owner
	Token   int64 // the latest of the key; the owner's own in a PushGrant; 0 in a PushEnds
	Left    time.Duration
	Waiting int64 // entries in the queue
}

// ParsePush reads a message as scripts write it: the kind, the owner's bytes,
// "token:waiting:" and the key, which may hold any byte. A PushEnds has the ms that are left
// in the token's place.
func ParsePush(message string) (Push, error) {
	bad := func(what string) (Push, error) {
		return Push{}, fmt.Errorf("%w push: %s", ErrMalformed, what)
	}
	const head = 1 + len(driver.Owner{})
	if len(message) < head {
		return bad("too short")
	}
	p := Push{Kind: PushKind(message[0])}
	switch p.Kind {
	case PushGrant, PushWait, PushLost, PushEnds:
	default:
		return bad("an unknown kind")
	}
	copy(p.Owner[:], message[1:head])
	token, rest, ok1 := strings.Cut(message[head:], ":")
	waiting, key, ok2 := strings.Cut(rest, ":")
	if !ok1 || !ok2 {
		return bad("no token or number of waiters")
	}
	var ok bool
	if p.Token, ok = parseNumber(token); !ok || p.Token == 0 {
		return bad("a token out of range")
	}
	if p.Kind == PushEnds {
		p.Token, p.Left = 0, time.Duration(min(p.Token, MaxPlaceTTL.Milliseconds()))*time.Millisecond
	}
	if p.Waiting, ok = parseNumber(waiting); !ok {
		return bad("a number of waiters out of range")
	}
	if key == "" {
		return bad("no key")
	}
	p.Key = key
	return p, nil
}
