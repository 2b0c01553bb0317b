package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core"
)

// inspect is the command.
func inspect(ctx context.Context, s *session, args []string) error {
	k, err := s.inspected(ctx, args[0])
	if err != nil {
		return err
	}
	if err := s.print(s.asJSON(k, nil), func() [][]string { return s.describe(k) }); err != nil {
		return err
	}
	if !k.Held {
		return notFoundError("")
	}
	return nil
}

func (s *session) inspected(ctx context.Context, arg string) (core.KeyState, error) {
	key, err := unquote(arg)
	if err != nil {
		return core.KeyState{}, err
	}
	k, err := s.locks.Inspect(ctx, key)
	return k, s.explained(ctx, err)
}

// describe says all that is known of a key.
func (s *session) describe(state core.KeyState) [][]string {
	k := s.asJSON(state, nil)
	held := "nobody holds it"
	switch n := len(k.Holders); {
	case n > 1:
		held = fmt.Sprintf("held by %d leases", n)
	case k.Held:
		held = "held"
	}
	rows := [][]string{
		{"key", k.Key},
		{"namespace", quote(s.namespace)},
		{"state", held},
		{"token", or(k.Token)},
		{"waiting", strconv.Itoa(k.Waiting)},
	}
	for _, h := range k.Holders {
		rows = append(rows, []string{"holder", h.holder()}, []string{"  mode", h.mode()},
			[]string{"  since", h.Since.Format(time.RFC3339Nano)}, []string{"  left", left(h.RemainingMS)}, []string{"  token", or(h.Token)})
		if h.TraceID != "" {
			rows = append(rows, []string{"  trace", h.TraceID}, []string{"  span", h.SpanID})
		}
	}
	for _, n := range k.Nodes {
		rows = append(rows, []string{"node", n.Addr + " " + n.Condition})
	}
	return rows
}

// releaseJSON is what release prints.
type releaseJSON struct {
	Key   string `json:"key"`
	Token string `json:"token"` // larger than those of the holders it was taken from
}

// release is the command.
func release(ctx context.Context, s *session, args []string) error {
	k, err := s.inspected(ctx, args[0])
	if err != nil {
		return err
	}
	if !k.Held {
		return notFoundError(fmt.Sprintf("the key %s is not held", quote(k.Key)))
	}
	if err := s.agreed(ctx, func(w io.Writer) { table(w, s.describe(k)) },
		"Its holders are told as far as they can be reached, and may be at work still. Take it from them?"); err != nil {
		return err
	}
	token, err := s.locks.ForceReleaseUpTo(ctx, k.Key, k.Token)
	switch {
	case errors.Is(err, core.ErrNotHeld):
		return notFoundError(fmt.Sprintf("nothing was done: another holder has the key %s meanwhile, and keeps it", quote(k.Key)))
	case err != nil:
		return s.explained(ctx, err)
	}
	return s.print(releaseJSON{quote(k.Key), tokenText(token)}, func() [][]string {
		return [][]string{{fmt.Sprintf("Released %s. Give the token %d to whatever guards the resource, and late writes of the old holder fail.", quote(k.Key), token)}}
	})
}

// agreed returns nil if -yes was given, or somebody at the terminal answers yes to a question
// about what show shows.
func (s *session) agreed(ctx context.Context, show func(io.Writer), question string) error {
	if s.yes {
		return nil
	}
	if !s.asks {
		return misuse("this has to be confirmed, and there is no terminal to ask at; a program says -yes")
	}
	show(s.errs)
	if _, err := fmt.Fprint(s.errs, question+" (yes/no) "); err != nil {
		return err
	}
	answer := make(chan string, 1)
	go func() { // it goes on reading when the program is interrupted, and ends
		line, _ := bufio.NewReader(io.LimitReader(s.in, 1024)).ReadString('\n') // an end of the input is no yes
		answer <- line
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case line := <-answer:
		if strings.TrimSpace(line) != "yes" {
			return fmt.Errorf("nothing was done: the answer was not yes")
		}
		return nil
	}
}
