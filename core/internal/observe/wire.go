package observe

import (
	"encoding/binary"
	"errors"
	"time"
)

// writer appends to a message: numbers as varints, strings after their length.
type writer struct{ b []byte }

func (w *writer) number(n uint64) { w.b = binary.AppendUvarint(w.b, n) }
func (w *writer) bytes(b []byte)  { w.b = append(w.b, b...) }
func (w *writer) duration(d time.Duration) {
	w.number(uint64(min(max(d, 0), longest) / time.Microsecond))
}

func (w *writer) text(s string) {
	w.number(uint64(len(s)))
	w.b = append(w.b, s...)
}

// reader reads what a writer wrote, or anything else: after the first fault it reads zeros.
type reader struct {
	b   []byte
	err error
}

// errMalformed says that a message is not what an engine of this release sends.
var errMalformed = errors.New("observe: the message is malformed")

func (r *reader) fail() {
	r.b, r.err = nil, errMalformed
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[size:]
	return n
}

// atMost reads a number that must not be larger than most.
func (r *reader) atMost(most uint64) uint64 {
	n := r.number()
	if n > most {
		r.fail()
		return 0
	}
	return n
}

// int reads a number of up to 31 bits.
func (r *reader) int() int { return int(r.atMost(1<<31 - 1)) }

// longest is no shorter than any duration in a message.
const longest = 365 * 24 * time.Hour

func (r *reader) duration() time.Duration {
	return time.Duration(r.atMost(uint64(longest/time.Microsecond))) * time.Microsecond
}

// text reads a string of at most so many bytes.
func (r *reader) text(most int) string { return string(r.take(int(r.atMost(uint64(most))))) }

// take reads so many bytes.
func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.fail()
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

// count reads how many things follow, of at least one byte each: at most so many.
func (r *reader) count(most int) int {
	n := int(r.atMost(uint64(most)))
	if n > len(r.b) {
		r.fail()
		return 0
	}
	return n
}
