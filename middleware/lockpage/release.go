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
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/watch"
)

// mostPosted bounds the form that the button sends.
const mostPosted = 4 << 10

// release is what the button of a key's page needs; zero if there is none.
type release struct {
	Who, Token string
	Held       string // the largest fencing token of the leases that the page has shown
	All        bool   // others may hold the key beside one
	Holders    int
	Tokens     []string // of the holders, as far as they are known
}

// mostTokens bounds the holders that the form names.
const mostTokens = 32

// mayRelease returns what the button of a key's page needs, if who asks for the page may use it.
func (p *page) mayRelease(r *http.Request, code string, k *watch.Key) release {
	if p.authorise == nil || k.Store == nil || !k.Store.Held {
		return release{}
	}
	who, ok := p.authorise(r)
	if !ok || who == "" {
		return release{}
	}
	out := release{Who: printable(who)}
	newest := k.Store.Token
	if len(k.Store.Holders) > 0 {
		newest = 0
		for i := range k.Store.Holders {
			h := &k.Store.Holders[i]
			newest = max(newest, h.Token)
			out.All = out.All || h.Mode != core.Exclusive
			for _, token := range tokensOn(h.Token, k.Holders) {
				out.Holders++
				if len(out.Tokens) < mostTokens {
					out.Tokens = append(out.Tokens, strconv.FormatInt(token, 10))
				}
			}
		}
	}
	out.Held = strconv.FormatInt(newest, 10)
	out.Token = p.sealer.seal(time.Now(), code, out.Held, who)
	return out
}

// tokensOn returns the tokens of who holds on a lease: its own, unless its process has told whom it
// has handed the lease on to, or who shares it. A lease has [leaseTokens] tokens.
func tokensOn(lease int64, holders []watch.Holder) (all []int64) {
	for i := range holders {
		if t := holders[i].Token; t >= lease && t-lease < leaseTokens && !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	if len(all) == 0 {
		return []int64{lease}
	}
	slices.Sort(all)
	return all
}

// leaseTokens is how many fencing tokens belong to a lease, see [core.Holder].
const leaseTokens = 1024

// serveRelease takes a key from its holder.
func (p *page) serveRelease(w http.ResponseWriter, r *http.Request) {
	if p.authorise == nil {
		p.fail(w, http.StatusNotFound, "There is no such page", "This page shows locks, and releases none.")
		return
	}
	if text := p.foreign(r); text != "" {
		p.fail(w, http.StatusForbidden, "Refused", text)
		return
	}
	who, ok := p.authorise(r)
	if !ok || who == "" {
		p.fail(w, http.StatusForbidden, "Refused", "You may not release locks.")
		return
	}
	in := http.NewResponseController(w)
	_ = in.SetReadDeadline(time.Now().Add(slowest)) // where there is none, the server's is all
	r.Body = http.MaxBytesReader(w, r.Body, mostPosted)
	if err := r.ParseForm(); err != nil {
		p.fail(w, http.StatusBadRequest, "Refused", "The form cannot be read.")
		return
	}
	_ = in.SetReadDeadline(time.Time{}) // else it would end what is under way
	code, held, token := r.PostForm.Get("id"), r.PostForm.Get("held"), r.PostForm.Get("token")
	upTo, err := strconv.ParseInt(held, 10, 64)
	if err != nil {
		err = errSealWrong
	} else {
		err = p.sealer.check(time.Now(), token, code, held, who)
	}
	if err != nil {
		p.notNow(w, err)
		return
	}
	s, leave, err := p.hub.look(r.Context())
	if err != nil {
		p.fail(w, http.StatusServiceUnavailable, "Not released", "The engine is closed.")
		return
	}
	defer leave()
	key, ok := s.named(r.Context(), code)
	if !ok {
		p.fail(w, http.StatusNotFound, "Not released", "Nobody uses the key any more.")
		return
	}
	st, err := p.locks.Inspect(r.Context(), key)
	switch {
	case err != nil:
		p.fail(w, http.StatusBadGateway, "Not released", "The store does not answer; the key is as it was. The page that you come from can be used again.")
		return
	case !st.Held:
		p.fail(w, http.StatusConflict, "Not released", noMore)
		return
	}
	if err := p.sealer.use(time.Now(), token); err != nil {
		p.notNow(w, err)
		return
	}
	fence, err := p.locks.ForceReleaseUpTo(core.WithOperator(r.Context(), who), key, upTo)
	switch {
	case errors.Is(err, core.ErrPolicy):
		p.fail(w, http.StatusConflict, "Not released", "The engine does not release by force.")
	case errors.Is(err, core.ErrNotHeld):
		p.fail(w, http.StatusConflict, "Not released", noMore)
	case err != nil:
		p.fail(w, http.StatusBadGateway, "Perhaps released", "The store has not answered. Look at the key; what was asked for may have happened.")
	default:
		p.say(w, http.StatusOK, &said{
			Title: "Released by force", Token: strconv.FormatInt(fence, 10),
			Text: "Whoever held the key may still be at work. Give this fencing token to what guards the resource, and late writes are refused:",
		})
	}
}

// foreign says why a request is refused that does not come from a page of the same origin, or is
// not known to.
func (p *page) foreign(r *http.Request) string {
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	switch err := p.origin.Check(r); {
	case site == "" && (origin == "" || origin == "null"):
		return "The browser does not say which page the request comes from."
	case err == nil:
		return ""
	case site == "":
		return "The request comes from a page of " + printable(origin) + ", and was sent to " + printable(r.Host) +
			". If a proxy has changed the host, name the page's origin by lockpage.WithTrustedOrigins, or configure the proxy to preserve it."
	}
	return "The request does not come from this page."
}

// noMore says that somebody else holds the key, or nobody.
const noMore = "The holder that the page showed no longer holds the key. Look again."

// notNow refuses a form whose token is good for nothing.
func (p *page) notNow(w http.ResponseWriter, err error) {
	p.fail(w, http.StatusForbidden, "Refused", "Open the page of the key again and use its button: "+err.Error()+".")
}

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
