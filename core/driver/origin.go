package driver

// Origin says where a lease comes from, for an operator who looks for its holder. It is a
// label, and nothing is decided by it. The zero value is not known.
type Origin struct {
	// Identity is the Config.Identity of the session that took the lease.
	Identity string

	// Trace is the trace of the request that took it; nil if that was not traced or not
	// sampled, or if the driver does not store it. It is never changed.
	Trace *Trace
}

// Known reports whether the origin says anything.
func (o Origin) Known() bool { return o.Identity != "" || o.Trace != nil }

// Same reports whether two origins say the same. Two with traces of their own may, so that ==
// does not tell.
func (o Origin) Same(other Origin) bool {
	a, b := o.Trace, other.Trace
	return o.Identity == other.Identity && (a == b || a != nil && b != nil && *a == *b)
}

// MaxIdentity is how many bytes an identity has at most.
const MaxIdentity = 64

// ValidIdentity reports whether a session may be called that: 1 to [MaxIdentity] bytes, each
// an ASCII letter, a digit or one of . _ - : / @ + = , # ~ and %. So an identity needs no
// escaping in a log, a page or a store's names. One that is read from a store was written by
// whoever may write there, and is checked before it is shown.
func ValidIdentity(identity string) bool {
	if len(identity) == 0 || len(identity) > MaxIdentity {
		return false
	}
	for i := range len(identity) {
		if !identityBytes[identity[i]] {
			return false
		}
	}
	return true
}

var identityBytes = func() (all [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-:/@+=,#~%") {
		all[c] = true
	}
	return all
}()

// Trace names a span, as W3C Trace Context does.
type Trace struct {
	TraceID [16]byte
	SpanID  [8]byte
	Flags   byte
}

// TraceSize is how many bytes [Trace.Append] appends.
const TraceSize = 16 + 8 + 1

// Append appends the trace to b, in a form that [ParseTrace] reads.
func (t *Trace) Append(b []byte) []byte {
	return append(append(append(b, t.TraceID[:]...), t.SpanID[:]...), t.Flags)
}

// ParseTrace reads what [Trace.Append] has written. It returns nil for anything else, also
// for a trace or a span whose ID is zero.
func ParseTrace(text string) *Trace {
	if len(text) != TraceSize {
		return nil
	}
	t := new(Trace)
	copy(t.TraceID[:], text)
	copy(t.SpanID[:], text[16:])
	t.Flags = text[24]
	if t.TraceID == [16]byte{} || t.SpanID == [8]byte{} {
		return nil
	}
	return t
}
