package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// watch is the command. A list that fails is said, and the next one is tried.
func watch(ctx context.Context, s *session, _ []string) error {
	tick := time.NewTicker(s.interval)
	defer tick.Stop()
	var last error
	for n := 1; ; n++ {
		l, err := s.readKeys(ctx)
		if errors.As(err, new(usageError)) {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		if last = err; err != nil {
			_, _ = fmt.Fprintln(s.errs, "lockctl: "+err.Error()) // the next line may get through
		} else if err := s.draw(l); err != nil {
			return err
		}
		if n == s.count {
			return last
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// draw prints a list: on a terminal in the place of the one before.
func (s *session) draw(l listJSON) error {
	if s.json {
		return s.printJSON(l)
	}
	var b bytes.Buffer
	if s.draws {
		b.WriteString("\x1b[H\x1b[J") // the cursor to the upper left, and clear from there
	}
	fmt.Fprintf(&b, "%s  namespace %s  %s UTC  keys: %d\n", l.Store, quote(l.Namespace), l.Time.Format(time.DateTime), len(l.Keys))
	table(&b, l.rows())
	if !s.draws {
		b.WriteByte('\n')
	}
	_, err := io.Copy(s.out, &b)
	return err
}
