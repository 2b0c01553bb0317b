package redislock

import (
	"context"
	"encoding"
	"fmt"
	"sync/atomic"
	"time"
)

// departure tells when the client has written requests. No client library says so, but go-redis has a context's
// deadline twice: for writing, and then for reading the replies. Once it has taken the last word of the last
// request, the next look at the deadline comes after the write. If that should change, nobody is told before the
// reply.
type departure struct {
	context.Context
	early bool // the client does not look at the deadline: tell when the words are taken, just before the write

	open atomic.Int32 // words that the client has not taken
	tell []func()
}

// follow calls written once the request is written that ends with the word, which it replaces.
func (d *departure) follow(word *any, written func()) {
	d.open.Add(1)
	d.tell = append(d.tell, written)
	*word = lastWord{*word, d}
}

// Deadline is the context's.
func (d *departure) Deadline() (time.Time, bool) {
	if d.open.Load() <= 0 {
		d.left()
	}
	return d.Context.Deadline()
}

func (d *departure) left() {
	for _, written := range d.tell {
		written()
	}
}

// lastWord is the last word of a request.
type lastWord struct {
	word any
	of   *departure
}

// String is the word for hooks that print commands.
func (w lastWord) String() string { return fmt.Sprint(w.word) }

// MarshalBinary returns the word as the client would write it.
func (w lastWord) MarshalBinary() (b []byte, err error) {
	switch v := w.word.(type) {
	case encoding.BinaryMarshaler:
		b, err = v.MarshalBinary()
	case []byte:
		b = v
	default:
		b = fmt.Append(nil, v)
	}
	if w.of.open.Add(-1) == 0 && w.of.early {
		w.of.left()
	}
	return b, err
}
