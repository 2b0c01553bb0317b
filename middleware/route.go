package middleware

import (
	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
)

// checkRoute returns an error unless every {path.…} name of the key is a parameter of the
// request's, once: of its route, or one that a handler before has added. The first such
// fault of a route is logged.
func (l *lock) checkRoute(c *gin.Context) error {
	for _, name := range l.rule.PathNames {
		n := 0
		for _, p := range c.Params {
			if p.Key == name {
				n++
			}
		}
		if n != 1 {
			return l.misrouted(c.FullPath(), name, n)
		}
	}
	for _, p := range c.Params {
		if err := l.rule.Misread(p.Key); err != nil {
			return l.unfit(c.FullPath(), &core.Error{Detail: err.Error()})
		}
	}
	return nil
}

// misrouted is the error for a request of a route that has n parameters of this name.
func (l *lock) misrouted(route, name string, n int) error {
	fault := &core.Error{Placeholder: "path." + name}
	switch {
	case n == 0:
		fault.Detail = "route " + route + " has no parameter of this name; give the key one of the route's own"
	default:
		fault.Detail = "route " + route + " has several parameters of this name; give each a name of its own"
	}
	return l.unfit(route, fault)
}

// unfit completes fault as the ErrPolicy for a key that does not fit its route. The first one
// of a route is logged.
func (l *lock) unfit(route string, fault *core.Error) error {
	fault.Op, fault.Policy, fault.Kind = "do", l.rule.Name, core.ErrPolicy
	if _, logged := l.routes.LoadOrStore(route, true); !logged {
		l.options.engine.Logger().Error("a lock's key does not fit its gin route, requests are refused",
			"lock.name", l.rule.Name, "route", route, "placeholder", fault.Placeholder, "fault", fault.Detail)
	}
	return fault
}
