// Package gocronleader lets gocron run jobs on the one process that leads:
//
//	s, err := gocron.NewScheduler(gocron.WithDistributedElector(gocronleader.Elector(leader)))
//
// The leader runs beside the scheduler, by leader.Run(ctx), with a function that waits for its
// context. A job that must not run twice takes its own lock as well, or gives the term to
// what it writes to: a process may lose its leadership while a job runs.
package gocronleader

import (
	"context"
	"errors"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockaround/lockaround/decorator/leader"
)

// Elector returns what gocron asks before each run of a job.
func Elector(l *leader.Runner) gocron.Elector { return elector{l} }

type elector struct{ leader *leader.Runner }

var errNotLeader = errors.New("another process leads")

// IsLeader returns nil if this process leads. It asks the clock and no store, so that it also
// fails in a process that was paused for longer than its lease.
func (e elector) IsLeader(context.Context) error {
	if !e.leader.Status().Leading {
		return errNotLeader
	}
	return nil
}
