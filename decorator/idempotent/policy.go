package idempotent

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Policy says what a record keeps, and what becomes of a call that died. All processes that use a
// key should have the same. Only Died has to be set.
type Policy struct {
	// Died says what a repeated call gets if the first one has begun and nobody knows how it ended: its
	// process crashed, it panicked, its lock was lost, or its answer could not be stored.
	Died DiedMode

	// Keep is for how long an answer is kept from when it is stored, by the store's clock. From then on
	// a repeated call runs again. At least 10 s, at most [MaxKeep]. Zero is 24 hours. The record of a
	// run that has not ended, or has died, is kept for 24 hours at least.
	Keep time.Duration

	// MaxBytes is the largest answer that is kept for replay. Of a larger one the record says
	// only that the call is done: a repeated call gets an [ErrNoReplay] and does not run. Zero is
	// 256 KiB.
	MaxBytes int

	// AnyCaller lets the key be nothing but what the client has chosen, such as an Idempotency-Key header.
	// Two clients that choose the same one get each other's answers then. False
	// refuses such a template. It is for surfaces whose clients choose keys.
	AnyCaller bool

	// Seal encrypts an answer before it is stored, and Open decrypts it. key is that of the
	// record, to be bound to what is sealed. Both or neither are set; nil stores answers as they are. They may be
	// called concurrently. An answer that Open fails for is not replayed, see [ErrNoReplay].
	Seal, Open func(key string, answer []byte) ([]byte, error)
}

// DiedMode says what becomes of a repeated call whose first run has died.
type DiedMode uint8

// The modes. The zero value is none: it is for you to say what a second run costs.
const (
	// Rerun runs the call again, under the lock, one at a time. An effect of the run that died may
	// happen twice: it is for calls whose effect is idempotent by itself, or fenced.
	Rerun DiedMode = iota + 1

	// Refuse runs it never again: repeated calls get an [ErrUnknown] until the record ends, or
	// somebody who has found out calls Forget. An effect happens at most once. It is for
	// money that a person can look up. If a store fails just before a run, or the lock cannot be had within
	// two seconds of the beginning of the record, a call that has not run may be an ErrUnknown.
	Refuse

	// Tx runs the call in a transaction that holds the record as well, so that an effect and its record are
	// committed together, or neither is: what is written in the transaction happens exactly once, whatever
	// dies. What is done elsewhere may happen twice, as by Rerun. It needs a [TxStore], in the
	// database of the effects, and takes one of its connections for as long as the call runs. [TxFrom] returns
	// the transaction.
	Tx
)

const (
	defaultKeep     = 24 * time.Hour
	defaultMaxBytes = 256 << 10
	minPolicyKeep   = 10 * time.Second
)

// fill checks p and fills in the defaults.
func (p *Policy) fill() error {
	switch {
	case p.Died == 0:
		return errors.New("idempotent.Policy.Died is not set; say whether a call whose run died is run again (Rerun), never (Refuse), or has its record in the transaction of its effects (Tx)")
	case p.Died > Tx:
		return fmt.Errorf("idempotent.Policy.Died is %d; use Rerun, Refuse or Tx", p.Died)
	case p.Keep != 0 && p.Keep < minPolicyKeep || p.Keep > MaxKeep:
		return fmt.Errorf("idempotent.Policy.Keep is %v; use %v to %v, or 0 for %v; durations have units, as in 24*time.Hour", p.Keep, minPolicyKeep, MaxKeep, defaultKeep)
	case p.MaxBytes < 0:
		return fmt.Errorf("idempotent.Policy.MaxBytes is %d; use 1 or more, or 0 for %d", p.MaxBytes, defaultMaxBytes)
	case (p.Seal == nil) != (p.Open == nil):
		return errors.New("one of idempotent.Policy.Seal and Open is set; set both, or neither")
	}
	if p.Keep == 0 {
		p.Keep = defaultKeep
	}
	if p.MaxBytes == 0 {
		p.MaxBytes = defaultMaxBytes
	}
	return nil
}

// What can go wrong with a repeated call, for errors.Is, beside what can with its lock.
var (
	// ErrMismatch: the key was used for something else.
	ErrMismatch = errors.New("idempotency key was used for another request")
	// ErrUnknown: an earlier run has begun, and how it ended is not known. See [Refuse].
	ErrUnknown = errors.New("outcome of an earlier run is unknown")
	// ErrNoReplay: the call is done, and its answer is too large to replay, or cannot be read.
	ErrNoReplay = errors.New("call is done and its answer cannot be replayed")
	// ErrUnavailable: the store of the records does not answer, or refuses. The call has not run; or, under
	// [Tx], it was rolled back, or whether it was committed is not known. The same call may be sent again:
	// it finds out.
	ErrUnavailable = errors.New("idempotency store unavailable")
)

// Error says what went wrong with a call, and of which policy. Its text has neither keys nor
// values nor what the store said.
type Error struct {
	Policy string // the policy's Name
	Kind   error  // ErrMismatch, ErrUnknown, ErrNoReplay or ErrUnavailable
	Detail string // what was wrong; may be empty
	Cause  error  // may be nil
}

// Error describes the failure in one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("idempotent call \"")
	b.WriteString(e.Policy)
	b.WriteString("\": ")
	b.WriteString(e.Kind.Error())
	if e.Detail != "" {
		b.WriteString(": ")
		b.WriteString(e.Detail)
	}
	return b.String()
}

// Unwrap returns Kind and Cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// reasonOf is what [github.com/lockaround/lockaround/core/reason] takes.
type reasonOf = struct {
	Code, Text string
	HTTP       int
	GRPC       uint32
	Again, Log bool
	After      time.Duration
}

var reasons = map[error]reasonOf{
	ErrMismatch:    {Code: "IDEMPOTENCY_MISMATCH", HTTP: 422, GRPC: 3, Text: "the idempotency key was used for another request"},
	ErrUnknown:     {Code: "IDEMPOTENCY_UNKNOWN", HTTP: 422, GRPC: 9, Text: "an earlier request with this idempotency key has begun, and whether it had an effect is not known"},
	ErrNoReplay:    {Code: "IDEMPOTENCY_NO_REPLAY", HTTP: 422, GRPC: 9, Text: "the request was done before, and its answer cannot be replayed"},
	ErrUnavailable: {Code: "IDEMPOTENCY_UNAVAILABLE", HTTP: 503, GRPC: 14, Again: true, Text: "whether the request was done before cannot be told at present"},
}

// Reason returns what the client of a request may be told: it makes the error a reason.Reasoner.
func (e *Error) Reason() reasonOf {
	r := reasons[e.Kind]
	r.Log = e.Kind == ErrNoReplay && e.Cause != nil
	return r
}
