package httplock

import (
	"net/http"
	"slices"

	"github.com/lockaround/lockaround/core"
)

// checkRoute compares the {path.…} names of the key with the wildcards of the
// request's route. A route's wildcards never change, so that the first request
// decides for all that have no such value. A value without a wildcard is one
// that an outer router, or a middleware, has set by SetPathValue.
func (l *lock) checkRoute(r *http.Request) error {
	for _, name := range l.rule.PathNames {
		if r.PathValue(name) == "" {
			return l.checkPattern(r.Pattern)
		}
	}
	return nil
}

func (l *lock) checkPattern(route string) error {
	fault, known := l.routes.Load(route)
	if !known {
		fault, known = l.routes.LoadOrStore(route, l.routeFault(route))
		if e := fault.(*core.Error); !known && e != nil {
			l.options.engine.Logger().Error("a lock's key does not fit its route, every request is refused",
				"lock.name", l.rule.Name, "route", route, "placeholder", e.Placeholder, "fault", e.Detail)
		}
	}
	if e := fault.(*core.Error); e != nil {
		return e
	}
	return nil
}

// routeFault returns nil if every name is a wildcard of the route.
func (l *lock) routeFault(route string) *core.Error {
	p, err := parsePattern(route)
	for _, name := range l.rule.PathNames {
		fault := &core.Error{Op: "do", Policy: l.rule.Name, Kind: core.ErrPolicy, Placeholder: "path." + name}
		switch {
		case route == "":
			fault.Detail = "the request has no Pattern, so no router has matched it; use this lock behind the router, around the route's handler"
		case err != nil:
			fault.Detail = "route " + route + " has no wildcards that can be told: " + err.Error()
		case !slices.Contains(p.names, name):
			fault.Detail = "route " + route + " has no wildcard of this name; give the key one of the route's own"
		default:
			continue
		}
		return fault
	}
	return nil
}
