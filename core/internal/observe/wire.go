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
	w.number(uint64(min(max(d, 0), Longest) / time.Microsecond))
}

func (w *writer) text(s string) {
	w.number(uint64(len(s)))
	w.b = append(w.b, s...)
}

// Reader reads what a writer wrote, or anything else: after the first fault it reads zeros.
type Reader struct {
	Rest []byte
	Err  error
}

// errMalformed says that a message is not what an engine of this release sends.
var errMalformed = errors.New("observe: the message is malformed")

// Fail notes that the message is malformed.
func (r *Reader) Fail() {
	r.Rest, r.Err = nil, errMalformed
}

// Number reads a number.
func (r *Reader) Number() uint64 {
	n, size := binary.Uvarint(r.Rest)
	if size <= 0 {
		r.Fail()
		return 0
	}
	r.Rest = r.Rest[size:]
	return n
}

// AtMost reads a number that must not be larger than most.
func (r *Reader) AtMost(most uint64) uint64 {
	n := r.Number()
	if n > most {
		r.Fail()
		return 0
	}
	return n
}

// Int reads a number of up to 31 bits.
func (r *Reader) Int() int { return int(r.AtMost(1<<31 - 1)) }

// Longest is no shorter than any duration in a message. A Wait of that long has no end.
const Longest = 365 * 24 * time.Hour

// Duration reads a duration, which is never negative.
func (r *Reader) Duration() time.Duration {
	return time.Duration(r.AtMost(uint64(Longest/time.Microsecond))) * time.Microsecond
}

// Text reads a string of at most so many bytes.
func (r *Reader) Text(most int) string { return string(r.Take(int(r.AtMost(uint64(most))))) }

// Take reads so many bytes.
func (r *Reader) Take(n int) []byte {
	if n > len(r.Rest) {
		r.Fail()
		return nil
	}
	b := r.Rest[:n]
	r.Rest = r.Rest[n:]
	return b
}

// Count reads how many things follow, of at least one byte each: at most so many.
func (r *Reader) Count(most int) int {
	n := int(r.AtMost(uint64(most)))
	if n > len(r.Rest) {
		r.Fail()
		return 0
	}
	return n
}
