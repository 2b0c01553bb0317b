package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core"
)

// list is the command ls.
func list(ctx context.Context, s *session, _ []string) error {
	l, err := s.readKeys(ctx)
	if err != nil {
		return err
	}
	return s.print(l, l.rows)
}

// listJSON is what ls prints, and watch for each list.
type listJSON struct {
	Time      time.Time `json:"time"`
	Store     string    `json:"store"`
	Namespace string    `json:"namespace"`
	Keys      []keyJSON `json:"keys"`
}

// maxListed bounds the memory and the lines of a list. Whoever has more asks by a prefix.
const maxListed = 100_000

// readKeys lists the keys, in order.
func (s *session) readKeys(ctx context.Context) (l listJSON, err error) {
	prefix, err := unquote(s.prefix)
	if err != nil {
		return l, err
	}
	l = listJSON{Time: time.Now().UTC().Truncate(time.Millisecond), Store: s.at.String(), Namespace: s.namespace, Keys: []keyJSON{}}
	for k, err := range s.locks.Keys(ctx, prefix) {
		switch {
		case err != nil && k.Key == "":
			return l, s.explained(ctx, err)
		case len(l.Keys) == maxListed:
			return l, fmt.Errorf("there are more than %d keys; list those of a -prefix", maxListed)
		}
		l.Keys = append(l.Keys, s.asJSON(k, err))
	}
	slices.SortFunc(l.Keys, func(a, b keyJSON) int { return strings.Compare(a.Key, b.Key) })
	return l, nil
}

// keyJSON is a key in JSON. Tokens are text, since many programs read numbers as float64.
type keyJSON struct {
	Key         string       `json:"key"`                  // as lockctl prints it, and takes it as an argument
	Raw         string       `json:"key_base64,omitempty"` // its bytes, if they differ from that
	Held        bool         `json:"held"`
	Token       string       `json:"token,omitempty"`
	RemainingMS int64        `json:"remaining_ms"`
	Waiting     int          `json:"waiting"`
	Holders     []holderJSON `json:"holders"`
	Nodes       []nodeJSON   `json:"nodes,omitempty"`
	Error       string       `json:"error,omitempty"`
}

type holderJSON struct {
	Mode        string    `json:"mode"`
	Limit       int       `json:"limit,omitempty"`
	Token       string    `json:"token,omitempty"`
	Since       time.Time `json:"since"`
	RemainingMS int64     `json:"remaining_ms"`
	Kept        bool      `json:"kept,omitempty"`
	Identity    string    `json:"identity,omitempty"`
	TraceID     string    `json:"trace_id,omitempty"`
	SpanID      string    `json:"span_id,omitempty"`
}

type nodeJSON struct {
	Addr      string `json:"addr"`
	Condition string `json:"condition"`
}

func tokenText(token int64) string {
	if token == 0 {
		return ""
	}
	return strconv.FormatInt(token, 10)
}

// asJSON returns a key for JSON. err is what the store said of it alone.
func (s *session) asJSON(k core.KeyState, err error) keyJSON {
	out := keyJSON{
		Key: quote(k.Key), Held: k.Held, Token: tokenText(k.Token), RemainingMS: k.Remaining.Milliseconds(), Waiting: k.Waiting,
		Holders: []holderJSON{},
	}
	if out.Key != k.Key {
		out.Raw = base64.StdEncoding.EncodeToString([]byte(k.Key))
	}
	if err != nil {
		out.Error = s.reason(err)
	}
	for _, h := range k.Holders {
		to := holderJSON{
			Mode: h.Mode.String(), Limit: h.Limit, Token: tokenText(h.Token), Since: h.Since.UTC(), RemainingMS: h.Remaining.Milliseconds(),
			Kept: h.Kept, Identity: h.Identity,
		}
		if h.TraceID.IsValid() {
			to.TraceID, to.SpanID = h.TraceID.String(), h.SpanID.String()
		}
		out.Holders = append(out.Holders, to)
	}
	for _, n := range k.Nodes {
		out.Nodes = append(out.Nodes, nodeJSON{inert(n.Addr), n.Condition.String()})
	}
	return out
}

// reason says in a line why the store did not do something, with what the store itself said: an
// operator may know it.
func (s *session) reason(err error) string {
	text := err.Error()
	var e *core.Error
	if errors.As(err, &e) && e.Cause != nil && e.Op != "ping" && !strings.Contains(text, e.Cause.Error()) {
		text += ": " + e.Cause.Error()
	}
	return s.secrets.scrub(inert(oneLine(text)))
}

// explained is an error with that reason. If the store was silent, it says whether its hosts can
// be reached at all.
func (s *session) explained(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	text := s.reason(err)
	if isSilence(err) {
		text += ": " + s.secrets.scrub(inert(s.reach(ctx)))
	}
	return errors.New(text)
}

// isSilence reports whether an error says no more than that no answer has come in time.
func isSilence(err error) bool {
	var e *core.Error
	if errors.As(err, &e) && e.Cause != nil {
		err = e.Cause
	}
	return errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "no answer within") || strings.HasSuffix(err.Error(), "i/o timeout")
}

// reach says what becomes of connections to the hosts of the URL.
func (s *session) reach(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, min(s.timeout, time.Second))
	defer cancel()
	said := make([]string, len(s.at.hosts))
	var all sync.WaitGroup
	for i, host := range s.at.hosts {
		all.Go(func() {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", host)
			if err != nil {
				said[i] = err.Error()
				return
			}
			said[i] = host + " accepts connections"
			_ = c.Close() // nothing was sent
		})
	}
	all.Wait()
	return strings.Join(said, "; ")
}

// print prints JSON, or rows.
func (s *session) print(v any, rows func() [][]string) error {
	if s.json {
		return s.printJSON(v)
	}
	table(s.out, rows())
	return nil
}

// printJSON prints one line of JSON.
func (s *session) printJSON(v any) error {
	e := json.NewEncoder(s.out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func (l listJSON) rows() [][]string {
	rows := [][]string{{"KEY", "MODE", "HOLDER", "SINCE (UTC)", "LEFT", "TOKEN", "WAITING"}}
	for _, k := range l.Keys {
		if k.Error != "" {
			rows = append(rows, []string{k.Key, "?", k.Error})
			continue
		}
		if len(k.Holders) == 0 {
			rows = append(rows, []string{k.Key, "-", "-", "-", left(k.RemainingMS), or(k.Token), strconv.Itoa(k.Waiting)})
		}
		for i, h := range k.Holders {
			name, waiting := k.Key, strconv.Itoa(k.Waiting)
			if i > 0 {
				name, waiting = "", ""
			}
			rows = append(rows, []string{name, h.mode(), h.holder(), h.Since.Format(time.DateTime), left(h.RemainingMS), or(h.Token), waiting})
		}
	}
	if len(l.Keys) == 0 {
		return [][]string{{fmt.Sprintf("No key is held or waited for in the namespace %s of %s.", strconv.Quote(l.Namespace), l.Store)}}
	}
	return rows
}

func (h holderJSON) mode() string {
	if h.Limit > 0 {
		return fmt.Sprintf("%s(%d)", h.Mode, h.Limit)
	}
	return h.Mode
}

func (h holderJSON) holder() string {
	if h.Kept {
		return "(kept by MinHold)"
	}
	return or(h.Identity)
}

func or(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func left(ms int64) string {
	return (time.Duration(ms) * time.Millisecond).Round(100 * time.Millisecond).String()
}

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
