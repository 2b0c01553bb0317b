package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// Inspect reports the state of a key as the nodes see it together: it is held if a
// majority has voted for the same owner, of which some have accepted its token, or keeps it.
func (s *session) Inspect(ctx context.Context, key string) (driver.State, error) {
	if err := s.Enter(); err != nil {
		return driver.State{}, err
	}
	defer s.Leave()
	answers, err := s.askMajority(ctx, command{op: opInspect, key: key})
	if err != nil {
		return driver.State{}, err
	}
	st := s.mergeAnswers(answers)
	st.Nodes = s.health.states(time.Now())
	return st, nil
}

// askMajority asks all nodes, and returns the answers of at least a majority.
func (s *session) askMajority(ctx context.Context, c command) ([]answer, error) {
	var answers []answer
	var errs []error
	ctxUntilEnough, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	enough := errors.New("enough")
	var stragglers *time.Timer
	err := s.askAll(ctxUntilEnough, s.timeout, []command{c}, func(b nodeReplies) bool {
		if r := b.replies[0]; r.err != nil {
			errs = append(errs, r.err)
		} else {
			answers = append(answers, r.answer)
		}
		if len(answers) == s.quorum && stragglers == nil {
			stragglers = time.AfterFunc(stragglerWait, func() { cancel(enough) })
		}
		return false
	}, nil)
	if stragglers != nil {
		stragglers.Stop()
	}
	switch {
	case len(answers) >= s.quorum && (err == nil || context.Cause(ctxUntilEnough) == enough):
		return answers, nil
	case err != nil:
		return nil, err
	}
	return nil, noMajority(len(s.nodes), len(answers), errs)
}

// stragglerWait is how long an inspection waits for the other nodes when a majority has
// answered.
const stragglerWait = 250 * time.Millisecond

// mergeAnswers makes one state of the nodes' answers.
func (s *session) mergeAnswers(answers []answer) driver.State {
	var st driver.State
	type candidate struct {
		left []time.Duration
		driver.Holder
	}
	candidates := make(map[driver.Owner]*candidate) // a kept key has the zero Owner
	waiting := make(map[driver.Owner]int)
	for _, a := range answers {
		st.Token = max(st.Token, a.token)
		for _, o := range a.queue {
			waiting[o]++
		}
		if !a.held {
			continue
		}
		p := candidates[a.holder]
		if p == nil {
			p = &candidate{Holder: driver.Holder{Mode: driver.Exclusive}}
			candidates[a.holder] = p
		}
		p.left = append(p.left, a.left)
		p.Token = max(p.Token, a.accepted)
		p.Kept = a.kept
		if o := a.taker.origin(); o.Identity != "" && p.Trace == nil {
			p.Origin = o
		}
		if a.since.After(p.Since) {
			p.Since = a.since
		}
	}
	for _, n := range waiting {
		if n+len(s.nodes)-len(answers) >= s.quorum { // a majority may know the place
			st.Waiting++
		}
	}
	for _, p := range candidates {
		if len(p.left) < s.quorum || p.Token == 0 { // or its token is on its way
			continue
		}
		slices.SortFunc(p.left, func(a, b time.Duration) int { return cmp.Compare(b, a) })
		p.Remaining = p.left[s.quorum-1] // then no majority is left
		st.Held, st.Remaining, st.Token = true, p.Remaining, p.Token
		st.Holders = []driver.Holder{p.Holder}
	}
	return st
}

// Oust ends the lease of a key, whoever has it.
func (s *session) Oust(ctx context.Context, key string, upTo int64) error {
	if err := s.Enter(); err != nil {
		return err
	}
	defer s.Leave()
	_, err := s.askMajority(ctx, command{op: opOust, key: key, token: upTo})
	return err
}

// Ping reports whether a majority of the nodes answers and permits every command, the
// keys and the channel that the driver needs. It leaves no trace.
func (s *session) Ping(ctx context.Context) error {
	if err := s.Enter(); err != nil {
		return err
	}
	defer s.Leave()
	answers, err := s.askMajority(ctx, command{op: opProbe, key: s.channel, channel: s.channel})
	if err != nil {
		return err
	}
	able := 0
	var missing []string
	for _, a := range answers {
		if len(a.failure) == 0 {
			able++
			continue
		}
		for i := 0; i < len(a.failure); i += 2 {
			missing = append(missing, a.failure[i]+" ("+a.failure[i+1]+")")
		}
	}
	if able >= s.quorum {
		return nil
	}
	slices.Sort(missing)
	text := strings.Join(slices.Compact(missing), ", ")
	return &driver.PermanentError{Err: fmt.Errorf("redlock: %d of %d nodes do not permit what locks need on keys and channels %s*: %s",
		len(answers)-able, len(s.nodes), KeyPrefix, text)}
}
