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
	"github.com/lockaround/lockaround/core/internal/kit"
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

var _ driver.Lister = (*session)(nil)

// List names the keys that the nodes know, one node after the other. Those that a majority knows are
// among them as soon as so many nodes are done that any majority has one of them: two of three.
// So it goes on past a minority that does not answer. Keys that were held within the last hour
// are there too.
func (s *session) List(ctx context.Context, prefix, after string, limit int) (driver.Page, error) {
	if err := s.Enter(); err != nil {
		return driver.Page{}, err
	}
	defer s.Leave()
	var at listing
	if after != "" {
		if _, err := fmt.Sscan(after, &at.node, &at.cursor, &at.done); err != nil || at.node < 0 || at.done < 0 {
			return driver.Page{}, &driver.PermanentError{Err: fmt.Errorf("redlock: list keys after %q, which no page has returned", after)}
		}
	}
	type answer struct {
		keys []string
		next uint64
	}
	var errs []error
	bound := s.timeout / time.Duration(len(s.nodes)) // one node after the other may be silent
	for ; at.node < len(s.nodes); at.node, at.cursor = at.node+1, 0 {
		a, err := kit.Run(ctx, s.Life, bound, func(ctx context.Context) (a answer, err error) {
			a.keys, a.next, err = s.nodes[at.node].scan(ctx, prefix, at.cursor, limit)
			return a, err
		})
		if ctx.Err() != nil || kit.Final(err) && err != nil && !kit.Refused(err) {
			return driver.Page{}, err
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if at.cursor = a.next; at.cursor == 0 {
			at.node, at.done = at.node+1, at.done+1
		}
		page := driver.Page{Keys: a.keys}
		if at.done < len(s.nodes)-s.quorum+1 {
			page.Next = fmt.Sprint(at.node, at.cursor, at.done)
		}
		return page, nil
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("the others did not answer"))
	}
	return driver.Page{}, noMajority(len(s.nodes), at.done, errs)
}

// listing is where a list goes on.
type listing struct {
	node   int
	cursor uint64
	done   int // nodes that have named all their keys
}

// scan looks at names by SCAN.
func (w *clientWire) scan(ctx context.Context, prefix string, cursor uint64, limit int) (keys []string, next uint64, err error) {
	names, next, err := w.client.Scan(ctx, cursor, KeyPrefix+"[lq]:"+glob.Replace(prefix)+"*", int64(limit)).Result()
	if err != nil {
		return nil, 0, classify(err)
	}
	for _, name := range names {
		if key := name[min(len(name), len(hashPrefix)):]; strings.HasPrefix(key, prefix) && key != "" {
			keys = append(keys, key)
		}
	}
	return keys, next, nil
}

// glob escapes what has a meaning in a pattern of Redis.
var glob = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)
