package middleware

import (
	"log/slog"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
)

// checkRoute compares the {path.…} names of the key with the parameters of the
// request's route. A route's parameters never change, so that the first request
// decides for all.
func (l *lock) checkRoute(c *gin.Context) error {
	if len(l.rule.PathNames) == 0 {
		return nil
	}
	route := c.FullPath()
	fault, known := l.routes.Load(route)
	if !known {
		var first bool
		fault, first = l.storeRoute(route, c.Params)
		if e := fault.(*core.Error); first && e != nil {
			slog.Error("a lock's key does not fit its gin route, every request is refused",
				"lock.name", l.rule.Name, "route", route, "placeholder", e.Placeholder, "fault", e.Detail)
		}
	}
	if e := fault.(*core.Error); e != nil {
		return e
	}
	return nil
}

func (l *lock) storeRoute(route string, ps gin.Params) (fault any, first bool) {
	fault, known := l.routes.LoadOrStore(route, l.routeFault(route, ps))
	return fault, !known
}

// routeFault returns nil if every name is a parameter of the route, once.
func (l *lock) routeFault(route string, ps gin.Params) *core.Error {
	for _, name := range l.rule.PathNames {
		n := 0
		for _, p := range ps {
			if p.Key == name {
				n++
			}
		}
		fault := &core.Error{Op: "do", Policy: l.rule.Name, Kind: core.ErrPolicy, Placeholder: "path." + name}
		switch {
		case route == "":
			fault.Detail = "no route was matched, so there are no path parameters; use this lock on a route"
		case n == 0:
			fault.Detail = "route " + route + " has no parameter of this name; give the key one of the route's own"
		case n > 1:
			fault.Detail = "route " + route + " has several parameters of this name; give each a name of its own"
		default:
			continue
		}
		return fault
	}
	return nil
}
