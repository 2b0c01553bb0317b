package middleware

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/body"
	"github.com/lockaround/lockaround/middleware/internal/rule"
)

// Locked returns a handler that binds the request into a Req, takes the lock of
// the key that p makes of it, and calls fn with that very Req under the lock: no
// two decoders can differ in what they make of the request. It panics if the
// policy, Req, fn or an option cannot work; see [NewLocked].
//
// Besides {path.…}, {query.…}, {header.…}, {client.ip} and the names given with
// [WithValue], the placeholders of the key are the fields of Req by their Go
// names or their lock tags: {SKU}, {Warehouse.ID}, {sku} of a field tagged
// lock:"sku", see core.Fields; {body.…} is refused, and so is a name that is both
// a field's and a part of the request's. A number
// that a request leaves out is 0, and a key made of it would be shared by all
// such requests: tag the field binding:"required". Req is a struct.
//
// How a request is bound, and which tags count, is in the package comment. One
// that cannot be bound is refused before the lock is asked for, with an error
// that wraps [ErrBind].
//
// The lock is held while fn runs. Handlers after this one run when fn has
// returned, without the lock, as they do after any gin handler; those that fn
// runs by c.Next, under it. With [WithFilter], fn runs unlocked where the filter
// says so. [WithoutBodyBuffer] is refused.
func Locked[Req any](e *core.Engine, p core.Policy, fn func(*gin.Context, Req), o ...Option) gin.HandlerFunc {
	h, err := NewLocked(e, p, fn, o...)
	if err != nil {
		panic(err)
	}
	return h
}

// NewLocked returns a handler as [Locked] does, and an error where that panics. The handler is nil
// if and only if the error is not nil.
func NewLocked[Req any](e *core.Engine, p core.Policy, fn func(*gin.Context, Req), o ...Option) (gin.HandlerFunc, error) {
	l, err := newLocked(e, p, fn, o)
	if err != nil {
		return nil, fmt.Errorf("gin locked handler: %w", rule.Named("policy", rule.PolicyName(p), err))
	}
	return l.handle, nil
}

func newLocked[Req any](e *core.Engine, p core.Policy, fn func(*gin.Context, Req), opts []Option) (*lock, error) {
	t := reflect.TypeFor[Req]()
	if err := checkReq(t); err != nil {
		return nil, err
	}
	if fn == nil {
		return nil, errors.New("the function is nil; give it the one to run under the lock")
	}
	o, err := compileOptions(opts, true)
	if err != nil {
		return nil, err
	}
	if o.NoBuffer {
		return nil, errors.New("WithoutBodyBuffer is given, but the body is read to bind it before the lock is taken; leave the option out")
	}
	b, err := newBinder(t, o.formats)
	if err != nil {
		return nil, err
	}
	var pathNames []string
	l, err := compileLock(e, p, o, func(others core.Resolver[*request]) core.Resolver[*request] {
		fields := core.Fields[*Req]()
		return func(name string) (core.Accessor[*request], error) {
			part := partOf(name)
			field, err := fields(name)
			switch {
			case err == nil && part != "":
				return nil, fmt.Errorf("it is a field of %s and could be meant as a part of the request; use the field's Go name, or another lock tag", t)
			case part == "body":
				return nil, fmt.Errorf("the body is bound into %s; name the field that holds the value, such as {SKU}", t)
			case err == nil && o.HasValue(name):
				return nil, fmt.Errorf("it is a field of %s and the name of a WithValue; use another name for the option", t)
			case err == nil:
				if param, only := pathOnly(t, name); only {
					pathNames = append(pathNames, param)
				}
				return func(dst []byte, r *request) ([]byte, error) { return field(dst, r.bound.(*Req)) }, nil
			}
			other, otherErr := others(name)
			if otherErr == nil || part != "" {
				return other, otherErr
			}
			return nil, fmt.Errorf("%w; besides fields there are {path.name}, {query.name}, {header.Name}, {client.ip} and the names given with WithValue", err)
		}
	})
	if err != nil {
		return nil, err
	}
	if err := o.CheckUse(l.rule.Used, false); err != nil {
		return nil, err
	}
	// A field that only the path fills stays empty on a route without it.
	l.rule.PathNames = append(l.rule.PathNames, pathNames...)
	l.bound = &boundHandler{
		reads: func(c *gin.Context) bool {
			tag, reads, err := formatOf(c.Request, c.ContentType())
			return reads && err == nil && b.fields.formats[tag]
		},
		bind: func(r *request) error {
			req := new(Req)
			if err := b.bindRequest(r, req); err != nil {
				return fmt.Errorf("%w: %w", ErrBind, err)
			}
			r.bound = req
			return nil
		},
		call: func(r *request) { fn(r.c, *r.bound.(*Req)) },
	}
	return l, nil
}

// checkReq refuses types that a request cannot be bound into, or not safely:
// gin's validator panics when a body of null leaves a nil pointer.
func checkReq(t reflect.Type) error {
	switch t.Kind() {
	case reflect.Struct:
		return nil
	case reflect.Pointer:
		if t.Elem().Kind() == reflect.Struct {
			return fmt.Errorf("the request type is %s, which a body of null would leave nil; use %s", t, t.Elem())
		}
	case reflect.Interface:
		return fmt.Errorf("the request type is the interface %s, into which nothing can be bound; use a struct", t)
	}
	return fmt.Errorf("the request type is %s, a %s; use a struct with a field for each value", t, t.Kind())
}

// partOf returns which part of the request a placeholder is written as, or "". A
// field begins with such a name by its lock tag only.
func partOf(name string) string {
	switch part, _, _ := strings.Cut(name, "."); part {
	case "path", "query", "header", "body", "client":
		return part
	}
	return ""
}

// bindRequest fills what into points to, and leaves the forms that it has parsed
// to the handlers.
func (b *binder) bindRequest(r *request, into any) error {
	outer := r.c.Request
	copied := unread(outer, r.content.Whole)
	if outer.MultipartForm == nil {
		// Also if the validator panics, as it does about an unknown rule.
		defer func() { r.files = copied.MultipartForm }()
	}
	if err := b.bind(copied, r.c.ContentType(), r.c.Params, r.content.Whole, into); err != nil {
		return err
	}
	body.KeepForms(outer, copied)
	return nil
}
