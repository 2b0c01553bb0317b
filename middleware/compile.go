package middleware

import (
	"sync"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/body"
	"github.com/lockaround/lockaround/middleware/internal/rule"
)

// lock is one policy as compiled for gin.
type lock struct {
	rule    *rule.Rule[*request]
	options options
	bodies  body.Plan
	routes  sync.Map // gin's FullPath of those that the key was found not to fit

	bound *boundHandler // what runs under the lock; nil for the rest of the chain
}

// boundHandler is a handler that takes its request as a struct.
type boundHandler struct {
	reads func(*gin.Context) bool // whether binding a request reads its body
	bind  func(*request) error    // fills the request's bound, or wraps ErrBind
	call  func(*request)          // after bind
}

// compileLock compiles a policy for gin. The caller checks that o fits it.
func compileLock(e *core.Engine, p core.Policy, o options, around ...rule.Around[*request]) (*lock, error) {
	r, err := rule.Compile[*gin.Context](e, p, &o.Settings, around...)
	if err != nil {
		return nil, err
	}
	o.engine = e
	return &lock{rule: r, options: o, bodies: o.Plan(r.ReadsBody)}, nil
}
