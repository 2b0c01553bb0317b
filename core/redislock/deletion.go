package redislock

import (
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// The commands that delete a key if it is a string of that value: of Redis from 8.4 on, and of Valkey
// from 9.0 on.
const (
	deleteEx      = "delex"
	deleteIfEqual = "delifeq"
)

// deletion is how a server deletes a key by its value: by one command or the other, or by the script
// that ends a lease. Each is tried until the server, or the user's rights, do not have it. The zero value
// has tried none.
type deletion struct {
	tried               atomic.Int32
	byScript, byCommand atomic.Bool // a lease was ended so
}

var deletions = [...]string{deleteEx, deleteIfEqual, ""}

// known returns the command, or "" for the script.
func (d *deletion) known() string { return deletions[d.tried.Load()] }

// forget begins anew: there may be another server.
func (d *deletion) forget() {
	d.tried.Store(0)
	d.byScript.Store(false)
	d.byCommand.Store(false)
}

// proven returns whether a lease was ended by a command, or by the script if it is "": one request is enough then.
func (d *deletion) proven(by string) *atomic.Bool {
	if by == "" {
		return &d.byScript
	}
	return &d.byCommand
}

// failed reports whether a command has deleted nothing. The script has to say why, or do more.
func (d *deletion) failed(by string, a answer) bool {
	if a.err == nil {
		return a.value != int64(1)
	}
	if redis.HasErrorPrefix(a.err, "unknown command") || redis.HasErrorPrefix(a.err, "NOPERM") {
		if at := d.tried.Load(); deletions[at] == by {
			d.tried.CompareAndSwap(at, at+1)
		}
	}
	return isReply(a.err)
}
