package sqllock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// TestSweepsGoOnUntilNothingIsLeft keeps rows from staying of which the last sweep came too early: a key's row
// stays for a minute after its release.
func TestSweepsGoOnUntilNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c ownClaims
		c.init()
		if c.beginSweep(time.Now()) {
			t.Error("a session that was not used is to sweep")
		}
		id := driver.ID{Key: "a", Owner: driver.Owner{1}}
		c.addLease(driver.Grant{ID: id}, 0)
		time.Sleep(time.Hour)                     // so long it is held
		c.noteRelease(id, time.Now(), time.Now()) // when it would have ended
		for _, after := range []struct {
			pause time.Duration
			left  bool
		}{{30 * time.Second, true}, {30 * time.Second, true}, {30 * time.Second, true}, {30 * time.Second, false}, {time.Hour, false}} {
			time.Sleep(after.pause)
			if left := c.beginSweep(time.Now()); left != after.left {
				t.Errorf("a sweep is due: %v, want %v", left, after.left)
			}
		}
	})
}

// TestManyKeysAreSweptBeforeTheMinuteIsOver keeps the tables from growing with the keys of a minute.
func TestManyKeysAreSweptBeforeTheMinuteIsOver(t *testing.T) {
	var c ownClaims
	c.init()
	for n := range 3 * sweepAfter {
		c.addLease(driver.Grant{ID: driver.ID{Key: "a", Owner: driver.Owner{byte(n), byte(n >> 8)}}}, 0)
		due := false
		select {
		case <-c.manyAdded:
			due = true
		default:
		}
		if want := (n+1)%sweepAfter == 0; due != want {
			t.Fatalf("after %d keys a sweep is due: %v", n+1, due)
		}
		if due && !c.beginSweep(time.Now()) {
			t.Error("nothing is to be swept")
		}
	}
}
