package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// answerWithin is how long a Redis server may take for a command.
const answerWithin = 10 * time.Second

// Do sends one command to a Redis server, on a connection of its own, and returns the answer: nil,
// a string, an int64, or a []any of them. An error of the server's begins with its first word.
func (n *Node) Do(ctx context.Context, words ...any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", n.Addr())
	if err != nil {
		return nil, err
	}
	defer conn.Close()                                                          //nolint:errcheck // the answer has been read
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })() // what waits for it returns
	text := fmt.Sprintf("*%d\r\n", len(words))
	for _, w := range words {
		word := fmt.Sprint(w)
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return nil, err
	}
	return hear(bufio.NewReader(conn))
}

// Say is Do whose answer is text: what is a list has a line for each of its parts, and nil is empty.
func (n *Node) Say(ctx context.Context, words ...string) (string, error) {
	all := make([]any, len(words))
	for i, w := range words {
		all[i] = w
	}
	answer, err := n.Do(ctx, all...)
	return spelled(answer), err
}

func spelled(answer any) string {
	switch of := answer.(type) {
	case nil:
		return ""
	case []any:
		lines := make([]string, len(of))
		for i, part := range of {
			lines[i] = spelled(part)
		}
		return strings.Join(lines, "\n")
	}
	return fmt.Sprint(answer)
}

// refusal is an answer that is an error.
type refusal string

func (r refusal) Error() string { return string(r) }

// hear reads an answer of RESP2.
func hear(from *bufio.Reader) (any, error) {
	line, err := from.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSpace(line)
	if line == "" {
		return nil, errors.New("an empty line is no answer of Redis")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, refusal(rest)
	}
	n, err := strconv.Atoi(rest)
	switch {
	case err != nil:
		return nil, err
	case kind == ':':
		return int64(n), nil
	case n < 0:
		return nil, nil
	case kind == '$':
		text := make([]byte, n+len("\r\n"))
		_, err = io.ReadFull(from, text)
		return string(text[:n]), err
	case kind != '*':
		return nil, fmt.Errorf("%q is no answer of Redis", line)
	}
	all := make([]any, n)
	for i := range all {
		if all[i], err = hear(from); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// text is an answer that is a string, and empty if it is something else.
func text(answer any, _ error) string {
	s, _ := answer.(string)
	return s
}

// list is an answer that is one, and nil if it is something else.
func list(answer any, _ error) []any {
	l, _ := answer.([]any)
	return l
}
