// Package fiberlock puts a lock around a fiber handler:
//
//	type payment struct {
//		ID *int `uri:"id"`
//	}
//
//	bind := func(c fiber.Ctx, in *payment) error { return c.Bind().WithAutoHandling().URI(in) }
//	app.Post("/orders/:id/pay", fiberlock.Lock(locks, core.Policy{Key: "order:{ID}"}, bind, pay))
//
// The request is bound once, and pay gets the very value that was locked. A number that the
// request leaves out is 0; one behind a pointer is refused with 400 then.
//
// Do not use fiber's adaptor.HTTPMiddleware for this: it runs the handler when the middleware
// has returned, without the lock.
package fiberlock

import (
	"context"
	"errors"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/httplock"
)

// Lock returns a handler that binds a request into a T, takes the lock of the key that p makes
// of its fields, and calls handle with it. c.Context() carries the lease meanwhile, and ends
// with it. Strings of the T may be the request's own bytes: copy what outlasts the call. Lock
// panics if the policy cannot work.
func Lock[T any](e *core.Engine, p core.Policy, bind func(fiber.Ctx, *T) error, handle func(fiber.Ctx, T) error) fiber.Handler {
	guard, err := core.NewGuard(e, p, core.Fields[*T]())
	if err != nil {
		panic(err)
	}
	return func(c fiber.Ctx) error {
		var in T
		if err := bind(c, &in); err != nil {
			return err
		}
		var before fasthttp.ResponseHeader
		c.Response().Header.CopyTo(&before)
		var failed error // by handle, and not because it has lost its lock
		outer := c.Context()
		err := guard.Do(outer, &in, func(ctx context.Context) error {
			defer c.SetContext(outer)
			c.SetContext(ctx)
			if failed = handle(c, in); errors.Is(failed, context.Canceled) && context.Cause(ctx) != ctx.Err() {
				failed = nil
			}
			return nil
		})
		answer, ok := httplock.ProblemOf(outer, err)
		if !ok || failed != nil {
			return failed
		}
		if answer.Status == fiber.StatusInternalServerError {
			e.Logger().Error("a request was failed by its lock", "lock.name", guard.Name(), "route", c.Route().Path, "error", err)
		}
		before.CopyTo(&c.Response().Header) // nothing was sent: the client must not take it for a success
		for name := range answer.Header {
			c.Set(name, answer.Header.Get(name))
		}
		return c.Status(answer.Status).Send(answer.Body)
	}
}
