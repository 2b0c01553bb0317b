package surfacetest

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/lockaround/lockaround/core"
)

// Probe notes what calls act on, and under which lock. Its zero value is ready for use, by
// one test at a time and any number of goroutines.
type Probe struct {
	mu      sync.Mutex
	current string // the request that is under way
	acts    []act
}

type act struct {
	value   any
	key     string // empty without a lock
	request string
}

// Acts is what a handler calls with the value that it is about to act on, and with the
// context that its lock has given it. The value is comparable, and equal to another one if
// the handler would act on the same thing: parsed, and normalised as a database compares
// it. For a time that is t.UnixNano().
func (p *Probe) Acts(ctx context.Context, value any) {
	a := act{value: value}
	if l, ok := core.LeaseFrom(ctx); ok {
		a.key = strings.Join(l.Keys(), " and ")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a.request = p.current
	p.acts = append(p.acts, a)
}

// trying notes that a request is sent.
func (p *Probe) trying(request string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = request
}

// judge returns what was wrong with what was noted since the last time, and forgets it.
func (p *Probe) judge() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := faults(p.acts)
	p.acts = nil
	return found
}

func faults(acts []act) []string {
	var found []string
	byValue, byKey := map[any]act{}, map[string]act{}
	for _, a := range acts {
		if a.key == "" {
			found = append(found, fmt.Sprintf("%s: acts on %#v without a lock", a.request, a.value))
			continue
		}
		if other, known := byValue[a.value]; !known {
			byValue[a.value] = a
		} else if other.key != a.key {
			found = append(found, fmt.Sprintf("%s: acts on %#v under %q, and %s does so under %q", a.request, a.value, a.key, other.request, other.key))
		}
		if other, known := byKey[a.key]; !known {
			byKey[a.key] = a
		} else if other.value != a.value {
			found = append(found, fmt.Sprintf("%s: acts on %#v under %q, and under that %s acts on %#v", a.request, a.value, a.key, other.request, other.value))
		}
	}
	if len(byValue) < 2 && len(found) == 0 {
		found = append(found, fmt.Sprintf("calls have acted on %d values, which shows nothing; look whether the requests fit the handler, and whether that tells the probe", len(byValue)))
	}
	return found
}
