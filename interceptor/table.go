package interceptor

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/reason"
)

// table is the rules of methods, and what is the same for all of them.
type table struct {
	rules   map[string]*rule
	options options

	// fromProto: the rules are those of the options in .proto files, too.
	fromProto bool

	validated atomic.Bool
	warning   sync.Once
}

// compile fills t, or returns all that is wrong with the entries, by the order of their
// methods.
func (t *table) compile(entries []entry) error {
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.method, b.method) })
	t.rules = make(map[string]*rule, len(entries))
	used := make(map[string]bool)
	var faults []error
	for _, n := range entries {
		r, errs := compileRule(n, &t.options, used)
		for _, err := range errs {
			faults = append(faults, fmt.Errorf("%s: %w", n.where, err))
		}
		t.rules[n.method] = r
	}
	// A rule that does not compile may be the one that would use an option.
	if len(faults) == 0 {
		if err := t.options.checkUse(used); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// rule returns the rule for a call, or nil if it is let through. grpc's server takes a
// method without its first slash as well, and tells the interceptor of a stream the name
// as the client has sent it; later releases refuse such calls.
func (t *table) rule(ctx context.Context, method string) *rule {
	t.warnUnlinked()
	r := t.rules[method]
	if r == nil && !strings.HasPrefix(method, "/") {
		method = "/" + method
		r = t.rules[method]
	}
	if r == nil && strings.ContainsAny(method, "%?#") {
		// A handler of unknown methods may pass it on to a server that goes by net/http.
		path := method[:strings.IndexAny(method+"?", "?#")]
		if path, err := url.PathUnescape(path); err == nil {
			r = t.rules[path]
		}
	}
	if r != nil && t.options.filter != nil && !t.options.filter(ctx, method) {
		return nil
	}
	return r
}

// warnUnlinked says once that a rule may be for a method that does not exist.
func (t *table) warnUnlinked() {
	if t.validated.Load() {
		return
	}
	t.warning.Do(func() {
		for method, r := range t.rules {
			if r.message() == nil {
				t.options.engine.Logger().Warn("a lock's service is not linked into the program, so that nobody knows whether its rule is for anything;"+
					" link it, give its files with WithFiles, or at a server call Validate before serving", "method", method, "lock.name", r.name)
			}
		}
	})
}

// refuse returns the error of a call that never ran.
func (t *table) refuse(ctx context.Context, r *rule, err error) error {
	var e *core.Error
	if errors.Is(err, errField) && errors.As(err, &e) {
		err = &core.Error{
			Op: e.Op, Policy: e.Policy, Kind: core.ErrPolicy, Placeholder: e.Placeholder,
			Detail: "the method's message has no such field; correct the rule, and call Validate before serving", Cause: e.Cause,
		}
	}
	return t.fail(ctx, r, reason.Refused(err), err)
}

// fail returns the error that a caller gets.
func (t *table) fail(ctx context.Context, r *rule, why reason.Reason, err error) error {
	if t.options.mapper != nil {
		if mapped := t.options.mapper(ctx, r.method, err); mapped != nil {
			return mapped
		}
		return answer(reason.Failed(), err)
	}
	if why.Log {
		t.options.engine.Logger().Error(failedByLock, "lock.name", r.name, "method", r.method, "error.type", why.Code, "error", reason.Told(err))
	}
	return answer(why, err)
}
