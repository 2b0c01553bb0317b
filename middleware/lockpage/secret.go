package lockpage

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"maps"
	"sync"
	"time"
)

// sealer makes the codes of keys, and the tokens that a page's button is good for.
type sealer struct {
	secret []byte

	mu   sync.Mutex
	used map[string]time.Time // tokens that were used, until they would be too old
}

// sealTime is how long a page's button is good for.
const sealTime = 10 * time.Minute

// mostUsed bounds the tokens that are kept; with more, all are refused until some are too old.
const mostUsed = 10_000

func newSealer(secret []byte) *sealer {
	if secret == nil {
		secret = make([]byte, 32)
		_, _ = rand.Read(secret) // it never fails
	}
	return &sealer{secret: secret, used: map[string]time.Time{}}
}

func (s *sealer) mac(purpose string, parts ...string) []byte {
	m := hmac.New(sha256.New, s.secret)
	for _, p := range append([]string{purpose}, parts...) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		m.Write(n[:])
		m.Write([]byte(p))
	}
	return m.Sum(nil)
}

// code names a key.
func (s *sealer) code(key string) string { return hex.EncodeToString(s.mac("key", key)[:6]) }

var (
	errSealWrong = errors.New("the token is not one of this page")
	errSealOld   = errors.New("the page is too old")
	errSealUsed  = errors.New("the page was used before")
)

// seal returns a token for what the parts say, from now on.
func (s *sealer) seal(now time.Time, parts ...string) string {
	b := make([]byte, 24, 24+sha256.Size)
	binary.BigEndian.PutUint64(b, uint64(now.Unix()))
	_, _ = rand.Read(b[8:])
	return base64.RawURLEncoding.EncodeToString(append(b, s.mac("release", append(parts, string(b))...)...))
}

// check returns nil for a token that is good for what the parts say and has not been used. The
// error says why it is good for nothing.
func (s *sealer) check(now time.Time, token string, parts ...string) error {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) != 24+sha256.Size {
		return errSealWrong
	}
	b, sum := raw[:24], raw[24:]
	if !hmac.Equal(sum, s.mac("release", append(parts, string(b))...)) {
		return errSealWrong
	}
	if made := madeAt(b); now.After(made.Add(sealTime)) || made.After(now.Add(time.Minute)) {
		return errSealOld
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, used := s.used[token]; used {
		return errSealUsed
	}
	return nil
}

// use uses up a token that was found good. Of those who do that at once, one gets nil.
func (s *sealer) use(now time.Time, token string) error {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) < 24 {
		return errSealWrong
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.used) >= mostUsed {
		maps.DeleteFunc(s.used, func(_ string, until time.Time) bool { return now.After(until) })
	}
	if _, used := s.used[token]; used || len(s.used) >= mostUsed {
		return errSealUsed
	}
	s.used[token] = madeAt(raw).Add(sealTime)
	return nil
}

// madeAt is when a token was made, by what it begins with.
func madeAt(token []byte) time.Time { return time.Unix(int64(binary.BigEndian.Uint64(token)), 0) }
