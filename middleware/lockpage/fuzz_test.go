package lockpage

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
)

// FuzzRequest asks for what nobody can know: no answer is a fault of the server, shows a key that
// is masked, or releases a lock. A token that is not the page's is good for nothing.
func FuzzRequest(f *testing.F) {
	locks := engine(f, core.WithForceRelease())
	lease, err := locks.Acquire(f.Context(), core.Policy{Name: "deduct", Key: "stock:secret-sku"})
	if err != nil {
		f.Fatal(err)
	}
	p := newPage(locks, &options{streams: 1, authorise: byHeader, origin: http.NewCrossOriginProtection()})
	p.hub.first = 0
	f.Cleanup(func() {
		if err := lease.Release(context.Background()); err != nil {
			f.Error(err)
		}
		p.hub.mu.Lock()
		last := p.hub.present
		p.hub.mu.Unlock()
		if last != nil {
			last.idle.Stop()
			last.stop()
			<-last.over
		}
	})
	code := codeIn(f, get(f, p, "/").Body.String())
	good := p.sealer.seal(time.Now(), code, "1", "dana")
	f.Add("GET", "/debug/locks/", "id="+code, "")
	f.Add("GET", "/key", "id="+code+"0", "")
	f.Add("HEAD", "/events/", "id=%zz", "")
	f.Add("GET", "/events", "id="+code, "")
	f.Add("POST", "/release", "", "id="+code+"&held=1&token="+good)
	f.Add("POST", "/release", "", "id="+code+"&held=-9223372036854775808&token="+strings.Repeat("A", len(good)))
	f.Add("POST", "/release/../release", "id=x", "held=1;token=x&%")
	f.Add("TRACE", "//../style.css\x00", "\xff", "")
	statuses := []int{200, 204, 304, 400, 403, 404, 405, 409, http.StatusNotImplemented} // the last of a stream: a recorder has no deadlines
	f.Fuzz(func(t *testing.T, method, path, query, body string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://shop.example/", strings.NewReader(body))
		r.Method, r.URL = method, &url.URL{Path: path, RawQuery: query}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Header.Set("X-Operator", "dana")
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		if !slices.Contains(statuses, w.Code) {
			t.Errorf("%q %q?%q: %d %s", method, path, query, w.Code, w.Body)
		}
		if strings.Contains(w.Body.String(), "secret-sku") {
			t.Errorf("%q %q?%q shows the key", method, path, query)
		}
		if err := lease.Err(); err != nil {
			t.Fatalf("%q has taken the lock: %v", body, err)
		}
		form, _ := url.ParseQuery(body)
		if token := form.Get("token"); token != good && p.sealer.check(time.Now(), token, form.Get("id"), form.Get("held"), "dana") == nil {
			t.Errorf("the token %q is taken", token)
		}
	})
}
