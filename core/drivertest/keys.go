package drivertest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var keyChecks = []check{
	{"KeysAreIndependent", nil, keysAreIndependent},
	{"HostileKeysDoNotCollide", nil, hostileKeysDoNotCollide},
}

func keysAreIndependent(f *fixture) {
	const n = 60
	a, b := f.process(), f.process()
	blocked := a.take(f.key, f.long())
	w := b.queue(f.key)
	var (
		running sync.WaitGroup
		leases  = make([]*lease, n)
		errs    = make([]error, n)
		ctx     = f.patient()
	)
	for i := range n {
		p := []*process{a, b}[i%2]
		running.Go(func() {
			leases[i], errs[i] = acquireAnew(ctx, p, f.waiting(fmt.Sprintf("%s:%d", f.key, i), f.long()))
		})
	}
	f.finish(&running, "taking many free keys")
	var (
		renewals []driver.Renewal
		endings  []driver.Ending
	)
	for i, l := range leases {
		if errs[i] != nil {
			f.t.Fatalf("acquire of one of %d free keys: %v", n, errs[i])
		}
		if l.p == a {
			renewals = append(renewals, l.renewal(f.long()))
			endings = append(endings, l.ending())
		}
	}
	for i, r := range a.renew(renewals...) {
		if r.Err != nil {
			f.t.Fatalf("renewal %d of %d in one call: %v", i, len(renewals), r.Err)
		}
	}
	for i, err := range a.end(endings...) {
		if err != nil {
			f.t.Fatalf("release %d of %d in one call: %v", i, len(endings), err)
		}
	}
	for i, l := range leases {
		if got, want := f.state(l.Key).Held, l.p == b; got != want {
			f.t.Fatalf("key %d of %d: held is %v, not %v, after half of the leases were released", i, n, got, want)
		}
		if l.p == b {
			l.drop()
		}
	}
	w.stillWaits()
	blocked.holds()
	blocked.drop()
	w.granted(f.handOver(), "the waiter's grant after a release").drop()
}

// hostile are keys that some escaping or joining takes for one another.
func hostile() []string {
	long := strings.Repeat("k", 1023)
	return []string{
		"", " ", "a", "A", "a ", " a", "a:", ":a", "a::", ":", "::", "a:b", "a:b:", "a\x00", "a\x00b", "\x00",
		"{", "}", "{}", "{a}", "{a}b", "a{b}", "{{a}}", "}a{", "{}a", "a{}",
		"%", "%00", "%3A", "%3a", "a%3Ab", "%25", "%7B", "\\", "\\x00", "\\\\", "a\\", "_", "a_b", "a-b", "a.b", "a/b", "/a", "a/", "/", "..", "../a", "*", "a*", "?", "[a]",
		"\r\n", "\n", "a\n", "\t", "'", "\"", "`", ";", "a;b", "--", "$", "${a}", "#", "a b",
		"é", "e\u0301", "\u212a", "K", "ſ", "s", "\xff", "\xfe\xff", "\xc3", "\u200b", "\ufeff", "😀",
		long + "a", long + "b", strings.Repeat("{", 1024), strings.Repeat("\xff", 1024), strings.Repeat("\xfe", 1024),
	}
}

// hostileTTL is enough for a slow store to take all of them, since they are not renewed.
const hostileTTL = 5 * time.Minute

func hostileKeysDoNotCollide(f *fixture) {
	p, q := f.process(), f.process()
	long := max(f.long(), hostileTTL)
	var held []*lease
	for i, part := range hostile() {
		for _, key := range []string{f.key + part, part + f.key} {
			if part == "" && len(held) > 0 {
				continue // both are the bare key
			}
			l, err := p.try(key, long)
			if err != nil {
				f.t.Fatalf("key %d, %.40q…: %v", i, key, err)
			}
			if l.Key != key {
				f.t.Fatalf("the grant of key %d, %.40q…, names %.40q…", i, key, l.Key)
			}
			held = append(held, l)
		}
	}
	for i, l := range held {
		if i%5 == 0 {
			if _, err := q.try(l.Key, f.long()); !isHeld(err) {
				f.t.Fatalf("key %.40q… is held, but a request for it returned %v, not a *HeldError", l.Key, err)
			}
		}
		if st := f.state(l.Key); !st.Held || !f.inspected(st.Token, l) {
			f.t.Fatalf("key %.40q… was granted with token %d; after others were taken or released Inspect says %+v", l.Key, l.Token, st)
		}
		l.drop()
		if f.state(l.Key).Held {
			f.t.Fatalf("key %.40q… is held after its release", l.Key)
		}
	}
	// A waiter is woken by its own key.
	for _, part := range []string{"{a}:\x00\r\n'\xff", strings.Repeat("{", 1024)} {
		l := p.take(f.key+part, f.long())
		w := q.queue(l.Key)
		l.drop()
		w.granted(f.handOver(), "the waiter's grant after a release").drop()
	}
}
