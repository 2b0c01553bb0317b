package redisrecords

import (
	"context"
	_ "embed" // the scripts
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/decorator/internal/redispush"
)

var (
	//go:embed header.lua
	headerSource string
	//go:embed begin.lua
	beginSource string
	//go:embed finish.lua
	finishSource string
	//go:embed giveup.lua
	giveUpSource string

	beginScript  = redispush.Script(headerSource + beginSource)
	finishScript = redispush.Script(headerSource + finishSource)
	giveUpScript = redispush.Script(headerSource + giveUpSource)
)

// Store is an [idempotent.Store] in Redis. It is safe for concurrent use.
type Store struct {
	client redis.UniversalClient
	prefix string
}

var _ idempotent.Store = (*Store)(nil)

// New returns a store of the records whose keys in Redis begin with prefix. Stores with the same prefix
// share them. Nothing else may write there. New does no I/O, and the client stays the caller's.
//
// The client is a [*redis.Client], of a server or of Sentinels' master, or a [*redis.ClusterClient] that
// does not read from replicas. A [*redis.Ring] is refused: it takes keys to another server while theirs is
// down, where calls would run again.
func New(client redis.UniversalClient, prefix string) (*Store, error) {
	if err := redispush.Usable(client); err != nil {
		return nil, fmt.Errorf("redisrecords: %w", err)
	}
	if prefix == "" {
		return nil, errors.New(`redisrecords: the prefix is empty; use one that only these records have, such as "shop:once:"`)
	}
	return &Store{client: client, prefix: prefix}, nil
}

var (
	errForeign = errors.New("the key holds something else; give the records a prefix under which nothing else writes")
	errReply   = errors.New("the server's reply is none of the script's")
)

// Begin begins the call of a key. The error is [idempotent.ErrSuperseded], one of
// [idempotent.Claim.Validate], or around what has kept Redis from answering.
func (s *Store) Begin(ctx context.Context, key string, c idempotent.Claim) (idempotent.Record, error) {
	reply, err := s.run(ctx, beginScript, key, c)
	if err != nil {
		return idempotent.Record{}, failure("begin", err)
	}
	r, err := parse(reply)
	if err != nil && !errors.Is(err, idempotent.ErrSuperseded) {
		err = failure("begin", err)
	}
	return r, err
}

// Finish stores the answer. The error is one of [idempotent.Claim.Validate], or around what has kept
// Redis from answering.
func (s *Store) Finish(ctx context.Context, key string, c idempotent.Claim, answer []byte) (stored bool, err error) {
	reply, err := s.run(ctx, finishScript, key, c, answer)
	if err != nil {
		return false, failure("finish", err)
	}
	return reply == int64(1), nil
}

// GiveUp removes what c.Run has begun. The error is one of [idempotent.Claim.Validate], or around what has
// kept Redis from answering.
func (s *Store) GiveUp(ctx context.Context, key string, c idempotent.Claim) error {
	if _, err := s.run(ctx, giveUpScript, key, c); err != nil {
		return failure("give up", err)
	}
	return nil
}

// Forget removes a record. The error is around what has kept Redis from answering.
func (s *Store) Forget(ctx context.Context, key string) error {
	if err := s.client.Del(ctx, s.prefix+key).Err(); err != nil {
		return failure("forget", err)
	}
	return nil
}

func (s *Store) run(ctx context.Context, script *redis.Script, key string, c idempotent.Claim, more ...any) (any, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	args := append([]any{c.Run[:], fmt.Sprintf("%019d", c.Token), c.Fingerprint[:], milliseconds(c.Alone), milliseconds(c.Keep)}, more...)
	return script.Run(ctx, s.client, []string{s.prefix + key}, args...).Result()
}

// milliseconds is at least d, though the server's time is cut to whole ones.
func milliseconds(d time.Duration) int64 { return (d + 2*time.Millisecond - 1).Milliseconds() }

// The header of a record, as header.lua says.
const (
	runAt    = 2
	tokenAt  = 18
	aloneAt  = 37
	printAt  = 51
	answerAt = 83
)

// parse reads the answer of begin.lua.
func parse(raw any) (idempotent.Record, error) {
	reply, _ := raw.([]any)
	switch {
	case len(reply) == 1 && reply[0] == int64(0):
		return idempotent.Record{}, idempotent.ErrSuperseded
	case len(reply) == 1 && reply[0] == int64(1):
		return idempotent.Record{}, nil
	case len(reply) != 3 || reply[0] != int64(2):
		return idempotent.Record{}, errReply
	}
	alone, isInt := reply[1].(int64)
	text, isString := reply[2].(string)
	if !isInt || !isString || len(text) < answerAt {
		return idempotent.Record{}, errReply
	}
	token, err := strconv.ParseUint(text[tokenAt:aloneAt], 10, 63)
	if err != nil {
		return idempotent.Record{}, errForeign
	}
	r := idempotent.Record{State: idempotent.Begun, Token: int64(token), Alone: time.Duration(alone) * time.Millisecond}
	copy(r.Run[:], text[runAt:tokenAt])
	copy(r.Fingerprint[:], text[printAt:answerAt])
	if text[1] == 'd' {
		r.State, r.Alone, r.Answer = idempotent.Done, 0, []byte(text[answerAt:])
	}
	return r, nil
}

// failure says what was being done when Redis failed.
func failure(doing string, err error) error {
	if strings.HasPrefix(err.Error(), "FOREIGN ") {
		err = errForeign
	}
	return fmt.Errorf("redisrecords: %s: %w", doing, err)
}
