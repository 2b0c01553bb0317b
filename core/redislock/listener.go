package redislock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// listener keeps the session's one subscription. It starts with the first Acquire, even one
// that would not wait: the engine hands its lease on among the callers of this process until
// a push says that another process waits.
type listener struct {
	life    *kit.Life // of the session
	wire    wire
	channel string
	topics  *topics
	jitter  func() float64
	onUp    func(again bool)     // called when the subscription is up, for the first time or again
	onPush  func(payload string) // called for each push
	start   sync.Once

	mu          sync.Mutex
	up          bool
	err         error         // why the subscription is down, if it is
	change      chan struct{} // closed and replaced when up or err changes
	resubscribe context.CancelFunc
	reconnect   chan struct{} // closed and replaced when the subscription is up again
	missed      int           // grants in a row that a refresh found and that no push announced
}

func newListener(life *kit.Life, w wire, channel string, jitter func() float64) *listener {
	return &listener{
		life: life, wire: w, channel: channel, topics: newTopics(), jitter: jitter,
		change: make(chan struct{}), reconnect: make(chan struct{}),
	}
}

// ensure starts the listener.
func (l *listener) ensure() {
	l.start.Do(func() { l.life.Start(l.run) })
}

func (l *listener) run() {
	pause := firstPause
	wasUp := false
	for {
		ctx, cancel := context.WithCancel(l.life.Ctx)
		l.mu.Lock()
		l.resubscribe, l.missed = cancel, 0
		l.mu.Unlock()
		worked := false
		err := l.wire.listen(ctx, l.channel, l.topics, func() {
			worked = true
			if wasUp {
				l.noteReconnected()
			}
			l.onUp(wasUp)
			wasUp = true
			l.set(true, nil) // after onUp: once wait returns, the leases are being verified
		}, l.onPush)
		asked := ctx.Err() != nil
		cancel()
		if l.life.Ctx.Err() != nil {
			return
		}
		switch {
		case asked:
			err = nil
		case err == nil:
			err = errors.New("redis: the subscription has ended")
		}
		l.set(false, err)
		if worked {
			pause = firstPause
			if asked {
				continue
			}
		}
		if !kit.Sleep(l.life.Ctx, time.Duration((0.5+l.jitter())*float64(pause))) {
			return
		}
		pause = min(2*pause, maxPause)
	}
}

// set notes the state of the subscription.
func (l *listener) set(up bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up, l.err = up, err
	close(l.change)
	l.change = make(chan struct{})
}

// wait blocks until the subscription works or has failed, or ctx ends.
func (l *listener) wait(ctx context.Context) error {
	for {
		l.mu.Lock()
		up, err, change := l.up, l.err, l.change
		l.mu.Unlock()
		if up || err != nil {
			return err
		}
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		case <-l.life.Closing:
			return driver.ErrClosed
		}
	}
}

// noteReconnected makes senders repeat the renewals under way. The fault that broke the
// subscription may have broken their connections too, without an error.
func (l *listener) noteReconnected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.reconnect)
	l.reconnect = make(chan struct{})
}

// reconnected returns a channel that is closed when the subscription is up again.
func (l *listener) reconnected() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reconnect
}

// noteAnnounced notes that a push has announced a grant.
func (l *listener) noteAnnounced() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missed = 0
}

// noteMissed notes a grant that no push announced. After the second in a row the listener
// subscribes anew: after a failover a subscription can stay with the old master for ever.
func (l *listener) noteMissed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.missed++; l.missed >= 2 && l.up {
		l.missed = 0
		l.resubscribe()
	}
}
