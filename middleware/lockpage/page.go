package lockpage

import (
	"bytes"
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/watch"
)

//go:embed assets
var assets embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"moment": func(v any) *moment { m, _ := v.(*moment); return m },
}).ParseFS(assets, "assets/*.html"))

// Handler returns the page of an engine's locks. It panics with the exact fault if an option
// cannot work; [New] returns it instead.
//
//	mux.Handle("/debug/locks/", lockpage.Handler(locks))
//
// It is no surface for everybody: see the package comment for who may reach it.
func Handler(locks *core.Engine, opts ...Option) http.Handler {
	h, err := New(locks, opts...)
	if err != nil {
		panic(err)
	}
	return h
}

// New returns the page of an engine's locks, as [Handler] does. Where that panics, it returns an
// error that says what is wrong with which option.
//
// The pattern that it is registered under ends with a slash: its pages are beside each
// other below that.
func New(locks *core.Engine, opts ...Option) (http.Handler, error) {
	o, err := compile(locks, opts)
	if err != nil {
		return nil, fmt.Errorf("lockpage: %w", err)
	}
	if o.authorise != nil {
		// Nothing is asked for an empty key, and what is said first is whether anything could be.
		if _, err := locks.ForceRelease(context.Background(), ""); errors.Is(err, core.ErrPolicy) {
			return nil, fmt.Errorf("lockpage: WithRelease: %w", err)
		}
	}
	return newPage(locks, o), nil
}

func newPage(locks *core.Engine, o *options) *page {
	s := newSealer(o.secret)
	return &page{
		options: o, locks: locks, sealer: s, mask: &mask{sealer: s, show: o.showKeys},
		slots: make(chan struct{}, o.streams),
		hub: &hub{
			watch:  func(ctx context.Context) (watcher, error) { return watch.New(ctx, locks) },
			code:   s.code,
			panels: o.panels,
			linger: linger,
			first:  firstPicture,
		},
	}
}

// page is the handler.
type page struct {
	*options
	locks  *core.Engine
	sealer *sealer
	mask   *mask
	hub    *hub
	slots  chan struct{} // has a value for each stream

	servers sync.Map // *http.Server to a channel that is closed when it shuts down
}

// asset is a file that pages name, and nothing else does.
var files = map[string]string{
	"style.css": "text/css; charset=utf-8",
	"page.js":   "text/javascript; charset=utf-8",
	"icon.svg":  "image/svg+xml",
}

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.shutdown(r) // each request makes the server known, so that the first stream may come while it shuts down
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // without any, a form would come without its origin
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")

	name := path.Base(r.URL.Path)
	if strings.HasSuffix(r.URL.Path, "/") || r.URL.Path == "" {
		name = ""
	}
	switch name {
	case "release":
		p.only(w, r, p.serveRelease, http.MethodPost)
	case "", "key":
		p.only(w, r, p.servePage(name), http.MethodGet, http.MethodHead)
	case "events":
		p.only(w, r, p.serveEvents, http.MethodGet)
	default:
		if files[name] == "" {
			http.Error(w, "there is no such page", http.StatusNotFound)
			return
		}
		p.only(w, r, serveFile(name), http.MethodGet, http.MethodHead)
	}
}

// only serves requests with the methods, and whom WithViewers lets look.
func (p *page) only(w http.ResponseWriter, r *http.Request, serve http.HandlerFunc, methods ...string) {
	for _, m := range methods {
		if r.Method != m {
			continue
		}
		if p.viewer != nil && !p.viewer(r) {
			http.Error(w, "you may not look at this", http.StatusForbidden)
			return
		}
		serve(w, r)
		return
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	http.Error(w, "use "+strings.Join(methods, " or "), http.StatusMethodNotAllowed)
}

func serveFile(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		b, err := assets.ReadFile("assets/" + name)
		if err != nil {
			http.Error(w, "there is no such file", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", files[name])
		w.Header().Set("Cache-Control", "private, max-age=3600")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	}
}

// document is what the templates of whole pages get.
type document struct {
	Title    string
	Nonce    string
	Now      moment
	Window   string
	Sections map[string]section
	Key      *keyRow
	Panels   bool
	Release  release
	Says     *said
}

// servePage serves the overview, or a key's page.
func (p *page) servePage(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s, leave, err := p.hub.look(r.Context())
		if err != nil {
			p.fail(w, http.StatusServiceUnavailable, "The locks cannot be watched", "The engine is closed, or does not watch.")
			return
		}
		defer leave()
		pic := s.first(r.Context())
		b := &builder{now: pic.view.At, mask: p.mask}
		doc := &document{Title: "Locks", Panels: len(p.panels) > 0, Window: minutes(pic.view.Window)}
		var d *drawing
		if name == "key" {
			key, ok := s.named(r.Context(), r.URL.Query().Get("id"))
			if !ok {
				p.fail(w, http.StatusNotFound, "There is no such key now", "Nobody has used it for some minutes, or this process was started anew and its links with it.")
				return
			}
			k := s.key(r.Context(), key, pic)
			row := b.keyRow(&k)
			doc.Key, doc.Title = &row, row.Label
			doc.Release = p.mayRelease(r, row.Code, &k)
			d = b.closely(&k)
		} else {
			d = b.overview(pic)
		}
		if d.err == nil {
			doc.Sections = map[string]section{}
			for _, sec := range d.all {
				doc.Sections[sec.Name] = sec
			}
		}
		doc.Now = moment{At: pic.view.At}
		p.write(w, r, http.StatusOK, name, doc, d.err)
	}
}

// write writes a page.
func (p *page) write(w http.ResponseWriter, r *http.Request, status int, name string, doc *document, err error) {
	doc.Nonce = rand.Text()
	var out bytes.Buffer
	if err == nil {
		err = pages.ExecuteTemplate(&out, "page-"+name, doc)
	}
	if err != nil {
		p.locks.Logger().Error("lockpage: a page could not be made", "error", err)
		http.Error(w, "the page could not be made; the log says why", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'nonce-"+doc.Nonce+"'; style-src 'nonce-"+doc.Nonce+"'; img-src 'self'; "+
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types lockpage")
	h.Set("Content-Type", "text/html; charset=utf-8")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(slowest)) // where there is none, the server's is all
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(out.Bytes()) // a client that has gone has nobody to be told
	}
}

// said is a page that says one thing.
type said struct{ Title, Text, Token string }

func (p *page) fail(w http.ResponseWriter, status int, title, text string) {
	p.say(w, status, &said{Title: title, Text: text})
}

func (p *page) say(w http.ResponseWriter, status int, s *said) {
	p.write(w, &http.Request{Method: http.MethodGet}, status, "said", &document{Title: s.Title, Says: s}, nil)
}
