package lockpage

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/lockaround/lockaround/core"
)

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
// again, so that who is no longer allowed loses the page. The default lets everybody look who
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
