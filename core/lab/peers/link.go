package main

import (
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/internal/testkit/proxy"
	"github.com/lockaround/lockaround/core/lab/internal/measure"
)

// link is a proxy to a server that is some way off: everything arrives later, and as much
// may be under way as there is.
type link = proxy.Proxy[struct{}]

// newLink delays by that much each way, and counts what Redis clients send if sent is not
// nil. A busy link keeps its time better, and a processor from others.
func newLink(target string, delay time.Duration, busy bool, sent *atomic.Int64) (*link, error) {
	o := proxy.Options[struct{}]{Codec: func() proxy.Codec[struct{}] { return &requests{count: sent} }, Wait: measure.Idle}
	if busy {
		o.Wait = measure.Until
	}
	l, err := proxy.New(target, o)
	if err == nil {
		l.Delay(delay, delay)
	}
	return l, err
}
