package queues_test

import (
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/server"
	"github.com/lockaround/lockaround/decorator/queue/queuetest"
	"github.com/lockaround/lockaround/decorator/queue/sqlqueue"
)

// harnesses returns a function that makes harnesses. They share one database, and each has a
// proxy of its own.
func (p *product) harnesses(t *testing.T, notified bool) func(t *testing.T) *queuetest.Harness {
	d := p.database(t, p.Shared(t))
	return func(t *testing.T) *queuetest.Harness {
		link := newProxy(t, d.On.Addr())
		opts := []sqlqueue.Option{sqlqueue.WithPoll(50 * time.Millisecond)}
		if notified {
			opts = []sqlqueue.Option{sqlqueue.WithNotifications(server.Notifications{Source: d.SourceAt(d.On.Addr())})}
		}
		return &queuetest.Harness{
			Store: d.store(t, d.Connect(t, link.Addr(), p.text), opts...),
			Peer:  d.store(t, d.Connect(t, d.On.Addr(), p.other), opts...),
			LoseReply: func() func() bool {
				return link.DropReply(func(string) bool { return true })
			},
		}
	}
}

func TestConformance(t *testing.T) {
	for _, p := range products {
		t.Run(p.Name, func(t *testing.T) { queuetest.Run(t, p.harnesses(t, false)) })
	}
}

func TestConformanceWithNotifications(t *testing.T) {
	queuetest.Run(t, products[0].harnesses(t, true))
}
