package cache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"reflect"
	"time"
)

// content is an encoded value, or that there is none.
type content struct {
	kind byte // value or nothing
	data []byte
}

const (
	// entryMark begins an entry of this form; others are unreadable, which is as if
	// they were not there.
	entryMark = 0xc2

	value   = 'v'
	nothing = 'n'
)

// typeMark tells values of one type from those of another. A type goes by its name: the
// fields of a struct may change from one release to the next.
type typeMark [4]byte

func markOf(t reflect.Type) (m typeMark) {
	h := fnv.New32a()
	_, _ = io.WriteString(h, fullName(t)) // never fails
	h.Sum(m[:0])
	return m
}

// fullName is a type's name with the path of its package, and for a type without a name
// what it is made of.
func fullName(t reflect.Type) string {
	switch {
	case t.Name() != "":
		return t.PkgPath() + "." + t.Name()
	case t.Kind() == reflect.Map:
		return "map[" + fullName(t.Key()) + "]" + fullName(t.Elem())
	case t.Kind() == reflect.Pointer: // a nil one would be read as a zero value
		return "*" + fullName(t.Elem())
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Array:
		return "[]" + fullName(t.Elem())
	}
	return t.String()
}

// entry returns what is stored of values of a type, and for how long. It begins with how
// long before its end the value is stale: no clock of a process has a part in how old a
// value is.
func (c *Policy) entry(v content, of typeMark) ([]byte, time.Duration) {
	part := 1 - rand.Float64()*c.Jitter
	ttl, stale := c.Expiry, c.Expiry-c.Fresh
	if v.kind == nothing {
		ttl, stale = c.NotFound, 0
	}
	ttl, stale = time.Duration(float64(ttl)*part), time.Duration(float64(stale)*part)
	e := append(make([]byte, 0, 2+len(of)+binary.MaxVarintLen64+len(v.data)), entryMark, v.kind)
	e = append(e, of[:]...)
	e = binary.AppendUvarint(e, uint64(stale.Milliseconds()))
	return append(e, v.data...), max(ttl, MinTTL)
}

// parseEntry returns what entry was given, and how long before its end it is stale.
func parseEntry(e []byte) (v content, of typeMark, stale time.Duration, ok bool) {
	const head = 2 + len(of)
	if len(e) <= head || e[0] != entryMark || e[1] != value && e[1] != nothing {
		return content{}, of, 0, false
	}
	copy(of[:], e[2:])
	ms, n := binary.Uvarint(e[head:])
	if n <= 0 || ms > uint64(MaxTTL.Milliseconds()) {
		return content{}, of, 0, false
	}
	return content{kind: e[1], data: e[head+n:]}, of, time.Duration(ms) * time.Millisecond, true
}

// age says what may be done with what the cache has.
type age uint8

const (
	absent age = iota // there is none, or none that can be read
	stale
	early // fresh, and to be refreshed
	fresh
)

// found is what the cache has for a key.
type found[Out any] struct {
	age age
	out Out
	err error // ErrNotFound is what there is
	raw content
}

// read returns what an entry has.
func (f *Func[In, Out]) read(e Entry) (v found[Out]) {
	raw, of, staleFor, ok := parseEntry(e.Value)
	if !ok {
		return v
	}
	if of != f.mark {
		if f.foreign.CompareAndSwap(false, true) {
			f.engine.Logger().Error("a cache finds values of another type under its keys, and loads its own: two functions share them; give one of them another key or prefix", "lock.name", f.guard.Name())
		}
		return v
	}
	out, err := f.value(raw)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return v
	}
	v = found[Out]{age: fresh, out: out, err: err, raw: raw}
	switch {
	case raw.kind == nothing:
	case e.Left <= staleFor:
		v.age = stale
	case e.Left <= staleFor+f.policy.Early:
		v.age = early
	}
	return v
}

// value decodes. Every caller has a value of his own, which he may change.
func (f *Func[In, Out]) value(c content) (out Out, err error) {
	if c.kind == nothing {
		return out, f.failure("get", ErrNotFound, "", nil)
	}
	if err = f.policy.Codec.Unmarshal(c.data, &out); err != nil {
		var zero Out
		return zero, f.failure("get", ErrValue, "the codec does not decode what it has encoded; the cause says why", err)
	}
	return out, nil
}

// encode makes the content of what was loaded.
func (f *Func[In, Out]) encode(out Out) (content, error) {
	data, err := f.policy.Codec.Marshal(out)
	switch {
	case err != nil:
		return content{}, f.failure("load", ErrValue, "it cannot be encoded; the cause says why", err)
	case len(data) > f.policy.MaxBytes:
		return content{}, f.failure("load", ErrValue, fmt.Sprintf("it has %d bytes and cache.Policy.MaxBytes is %d", len(data), f.policy.MaxBytes), nil)
	}
	return content{kind: value, data: data}, nil
}
