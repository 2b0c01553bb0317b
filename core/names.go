package core

import (
	"regexp"
	"strings"
	"sync"
)

// names remembers how guards without a Name call the keys that they lock. Its zero value is
// ready for use.
type names struct {
	mu   sync.Mutex
	keys map[string]*called // by what the templates have in common
}

type called struct {
	name   string // of the first policy
	warned bool
}

// placeholder is a part of a template that a value takes the place of.
var placeholder = regexp.MustCompile(`\{[^}]*\}`)

// note warns, once for the same keys, if they have another name already. Keys are the same if
// their templates are, but for where the values come from.
func (n *names) note(e *Engine, pl *plan) {
	if other := n.other(pl); other != "" {
		e.log().Warn("lockaround: the same keys are locked under two names, so that metrics count them apart and an override is for one of them; set one Policy.Name for both",
			"lock.names", []string{other, pl.Name}, "lock.driver", e.caps.Name)
	}
}

// other returns another name of the plan's keys, the first time that there is one.
func (n *names) other(pl *plan) string {
	keys := placeholder.ReplaceAllLiteralString(strings.Join(pl.templates(), "+"), "{}")
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.keys[keys]
	switch {
	case c == nil && len(n.keys) < maxNames:
		if n.keys == nil {
			n.keys = make(map[string]*called)
		}
		n.keys[keys] = &called{name: pl.Name}
	case c != nil && c.name != pl.Name && !c.warned:
		c.warned = true
		return c.name
	}
	return ""
}
