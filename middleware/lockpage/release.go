package lockpage

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/lockaround/lockaround/core"
)

// mostPosted bounds the form that the button sends.
const mostPosted = 4 << 10

// release is what the button of a key's page needs; zero if there is none.
type release struct {
	Who, Token, Held string
}

// mayRelease returns what the button of a key's page needs, if who asks for the page may use it.
func (p *page) mayRelease(r *http.Request, code string, k *core.KeyView) release {
	if p.authorise == nil || k.Store == nil || !k.Store.Held {
		return release{}
	}
	who, ok := p.authorise(r)
	if !ok || who == "" {
		return release{}
	}
	held := strconv.FormatInt(k.Store.Token, 10)
	return release{Who: printable(who), Held: held, Token: p.sealer.seal(time.Now(), code, held, who)}
}

// serveRelease takes a key from its holder.
func (p *page) serveRelease(w http.ResponseWriter, r *http.Request) {
	if p.authorise == nil {
		p.fail(w, http.StatusNotFound, "There is no such page", "This page shows locks, and releases none.")
		return
	}
	if r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "" || p.origin.Check(r) != nil {
		p.fail(w, http.StatusForbidden, "Refused", "The request does not come from this page.")
		return
	}
	who, ok := p.authorise(r)
	if !ok || who == "" {
		p.fail(w, http.StatusForbidden, "Refused", "You may not release locks.")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, mostPosted)
	if err := r.ParseForm(); err != nil {
		p.fail(w, http.StatusBadRequest, "Refused", "The form cannot be read.")
		return
	}
	code, held := r.PostForm.Get("id"), r.PostForm.Get("held")
	if err := p.sealer.open(time.Now(), r.PostForm.Get("token"), code, held, who); err != nil {
		p.fail(w, http.StatusForbidden, "Refused", "Open the page of the key again and use its button: "+err.Error()+".")
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
		p.fail(w, http.StatusBadGateway, "Not released", "The store does not answer; the key is as it was.")
		return
	case !st.Held || strconv.FormatInt(st.Token, 10) != held:
		p.fail(w, http.StatusConflict, "Not released", "The holder that the page has shown holds the key no more. Look again.")
		return
	}
	token, err := p.locks.ForceRelease(core.WithOperator(r.Context(), who), key)
	switch {
	case errors.Is(err, core.ErrPolicy):
		p.fail(w, http.StatusConflict, "Not released", "The engine does not release by force.")
	case err != nil:
		p.fail(w, http.StatusBadGateway, "Perhaps released", "The store has not answered. Look at the key; what was asked for may have happened.")
	default:
		p.say(w, http.StatusOK, &said{
			Title: "Released by force", Token: fmt.Sprint(token),
			Text: "Whoever held the key may still be at work. Give this fencing token to what guards the resource, and late writes are refused:",
		})
	}
}
