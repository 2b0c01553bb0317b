package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

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
