// Package hiccups tells the lateness of a machine from that of what is tested on it.
package hiccups

import "time"

// Measure measures by how much this machine oversleeps at most, until stop is called.
func Measure() (stop func() time.Duration) {
	done, worst := make(chan struct{}), make(chan time.Duration)
	go func() {
		var most time.Duration
		for {
			select {
			case <-done:
				worst <- most
				return
			default:
			}
			start := time.Now()
			<-time.After(time.Millisecond)
			most = max(most, time.Since(start)-time.Millisecond)
		}
	}()
	return func() time.Duration { close(done); return <-worst }
}
