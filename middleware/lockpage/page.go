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
			ping:   locks.Ping,
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
	Where    string // the namespace
	Store    string // the driver's name
	Address  string // of the store; may be empty
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
		b := builderOf(pic, p.mask)
		doc := &document{Title: "Locks", Where: printable(pic.view.Store.Namespace), Store: printable(pic.view.Store.Driver), Address: printable(pic.view.Store.Address), Panels: len(p.panels) > 0, Window: minutes(pic.view.Window)}
		var d *drawing
		if name == "key" {
			key, ok := s.named(r.Context(), r.URL.Query().Get("id"))
			if !ok {
				p.fail(w, http.StatusNotFound, "There is no such key now", "Nobody has used it for some minutes, or this process has restarted, and its old links no longer work.")
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

const (
	// DefaultStreams is how many browsers are kept up to date at a time.
	DefaultStreams = 32

	// MinSecret is the least length of a secret, in bytes.
	MinSecret = 16
)

// Option changes what a page shows and permits. A nil Option does nothing. An option that is
// given twice, and one that cannot work, is an error of [New].
type Option func(*options) error

type options struct {
	given     map[string]bool
	showKeys  bool
	viewer    func(*http.Request) bool
	authorise func(*http.Request) (string, bool)
	panels    []core.Paneler
	streams   int
	secret    []byte
	origin    *http.CrossOriginProtection
}

func (o *options) once(name string) error {
	if o.given[name] {
		return fmt.Errorf("%s is given twice", name)
	}
	o.given[name] = true
	return nil
}

// ShowKeys shows keys as they are. Without it a key is shown as its policy's name, or its
// template, and a short code that tells it from others; no page, and no URL, has the key. The
// code is made with a secret ([WithSecret]), so that it does not betray a key that somebody guesses.
func ShowKeys() Option {
	return func(o *options) error {
		o.showKeys = true
		return o.once("ShowKeys")
	}
}

// WithViewers asks allow of every request; those for which it returns false are answered with
// 403. It sees cookies and headers as they came. Streams end after some minutes and are asked for
// again, so that a viewer who is no longer allowed loses the page. The default admits everybody who
// reaches the handler: then the authentication before it decides.
func WithViewers(allow func(*http.Request) bool) Option {
	return func(o *options) error {
		if allow == nil {
			return errors.New("WithViewers(nil): pass the function that says who may look, or leave the option out")
		}
		o.viewer = allow
		return o.once("WithViewers")
	}
}

// WithRelease puts a button on the page of a key that takes it from its holders by
// [core.Engine.ForceReleaseUpTo]. authorise is asked when the page is made, and again when the
// button is used; who is the operator, as the engine's log names him, and is not empty for ok. The
// engine has to be made with core.WithForceRelease(). Default: there is no such button.
//
// What is posted is refused unless it comes from a page of the same origin, by Sec-Fetch-Site or
// Origin ([WithTrustedOrigins] is for proxies that hide which one that is), and has that page's
// token. It is for one use, by the same operator, within ten minutes, and takes the key from those
// holders alone that the page has shown.
func WithRelease(authorise func(*http.Request) (who string, ok bool)) Option {
	return func(o *options) error {
		if authorise == nil {
			return errors.New("WithRelease(nil): pass the function that says who may release, or leave the option out")
		}
		o.authorise = authorise
		return o.once("WithRelease")
	}
}

// WithTrustedOrigins names origins whose pages may use the button of [WithRelease], such as
// "https://ops.shop.example". It is for a proxy that gives the service another Host than that which
// the browser asked for, if browsers send no Sec-Fetch-Site: over plain http, say, or if the proxy
// takes that away. Without it such a button is refused, and says so. Name the page's own origin as
// browsers see it, and no other: a page of a trusted origin needs the token all the same.
func WithTrustedOrigins(origins ...string) Option {
	return func(o *options) error {
		for _, origin := range origins {
			if err := o.origin.AddTrustedOrigin(origin); err != nil {
				return fmt.Errorf("WithTrustedOrigins(%q): %w; an origin is a scheme and a host, such as https://ops.shop.example", origin, err)
			}
		}
		return o.once("WithTrustedOrigins")
	}
}

// WithPanels adds tables below the locks: the serial functions, cached functions, jobs and
// leaders of package decorator each have one, and anything else may have. They are asked while
// somebody looks.
func WithPanels(panels ...core.Paneler) Option {
	return func(o *options) error {
		for i, p := range panels {
			if p == nil {
				return fmt.Errorf("WithPanels: panel %d is nil", i+1)
			}
		}
		o.panels = panels
		return o.once("WithPanels")
	}
}

// WithStreams bounds how many browsers are kept up to date at a time; one more is told to come
// later, and shows what it has got. n is 1 or more. The default is [DefaultStreams].
func WithStreams(n int) Option {
	return func(o *options) error {
		if n < 1 {
			return fmt.Errorf("WithStreams(%d): it is 1 or more", n)
		}
		o.streams = n
		return o.once("WithStreams")
	}
}

// WithSecret sets what the codes of keys and the tokens of the release button are made with, at
// least [MinSecret] bytes. Replicas behind one address need the same: links to keys, and the
// button, then work whichever of them answers. The default is random, for a page of one process.
func WithSecret(secret []byte) Option {
	return func(o *options) error {
		if len(secret) < MinSecret {
			return fmt.Errorf("WithSecret: it has %d bytes; use at least %d, of which nobody can guess any", len(secret), MinSecret)
		}
		o.secret = append([]byte(nil), secret...)
		return o.once("WithSecret")
	}
}

func compile(locks *core.Engine, opts []Option) (*options, error) {
	o := &options{given: map[string]bool{}, streams: DefaultStreams, origin: http.NewCrossOriginProtection()}
	if locks == nil {
		return nil, errors.New("the engine is nil; pass the one that core.New returned")
	}
	for _, opt := range opts {
		if opt == nil {
			continue
		}
		if err := opt(o); err != nil {
			return nil, err
		}
	}
	return o, nil
}
