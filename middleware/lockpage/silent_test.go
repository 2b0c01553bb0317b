package lockpage

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

// silent is a driver whose store does not answer for a time.
type silent struct {
	inspected
	now   atomic.Bool
	asked atomic.Int64
}

func newSilent() *silent {
	d := &silent{}
	d.inspected = inspected{memlock.New(), func() error {
		d.asked.Add(1)
		if d.now.Load() {
			return errors.New("no answer")
		}
		return nil
	}}
	return d
}

func TestPageOfAKeySaysThatTheStoreDoesNotAnswer(t *testing.T) {
	d := newSilent()
	c := openCounterOn(t, d)
	c.hold()
	key := "/key?id=" + codeIn(t, c.ask("dana", "/"))
	if text := c.ask("dana", key); strings.Contains(text, "does not answer") || !strings.Contains(text, "<form") {
		t.Errorf("while it answers:\n%s", text)
	}
	d.now.Store(true)
	text := ""
	eventually(t, "the page to say so, once what the store said lately is old", func() bool {
		text = c.ask("dana", key)
		return strings.Contains(text, "store does not answer")
	})
	if strings.Contains(text, "<form") || !strings.Contains(text, "exclusive") {
		t.Errorf("while it does not answer:\n%s", text)
	}
}

func TestStoreIsAskedOnceForAllWhoLookAtAKey(t *testing.T) {
	t.Parallel()
	d := newSilent()
	c := openCounterOn(t, d)
	c.hold()
	srv := served(t, c.page)
	list := listen(t, srv.URL+"/events")
	code := codeIn(t, list.until("key", "key?id=").Parts)
	began, before := time.Now(), d.asked.Load()
	all := make([]*listener, 20)
	for i := range all {
		all[i] = listen(t, srv.URL+"/events?id="+code)
	}
	for _, l := range all {
		l.until("holder", "exclusive")
	}
	for range 10 { // which changes what all of them show
		if err := c.locks.Do(t.Context(), core.Policy{Key: "other"}, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		list.until("total", "taken")
	}
	most := 1 + int64(time.Since(began)/keyEvery)
	if n := d.asked.Load() - before; n < 1 || n > most {
		t.Errorf("the store was asked %d times in %v by 20 who look", n, time.Since(began))
	}
}

func TestButtonCanBeUsedAgainIfTheStoreHasNotAnswered(t *testing.T) {
	d := newSilent()
	c := openCounterOn(t, d)
	lease := c.hold()
	f := c.form("dana")
	d.now.Store(true)
	if w := post(t, c.page, "dana", f); w.Code != 502 || !strings.Contains(w.Body.String(), "does not answer") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if err := lease.Err(); err != nil {
		t.Errorf("the lock was taken: %v", err)
	}
	d.now.Store(false)
	if w := post(t, c.page, "dana", f); w.Code != 200 {
		t.Errorf("when the store is back: %d %s", w.Code, w.Body)
	}
}
