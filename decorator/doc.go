// Package decorator puts a distributed lock around a function.
//
//	deduct := decorator.WithLock(locks, core.Policy{Key: "stock:{SKU}"}, svc.Deduct)
//	receipt, err := deduct(ctx, DeductRequest{SKU: "A-1", Count: 2})
//
// The result has the function's own type and is used in its place. Each call
// renders the policy's key from its argument, as [core.Fields] describes: {SKU}
// is a field, {.} an argument that is itself a string, an integer or a bool. It
// waits for the lock as the policy says, runs the function while holding the
// lock, and releases it when the function returns, panics or ends its
// goroutine; a panic goes on unchanged.
//
// A field with a lock tag can also be named by that, at any depth of a path:
//
//	type DeductRequest struct {
//		SKU   string `lock:"sku"`   // {sku} or {SKU}
//		Order Order  `lock:"order"` // {order.id}, if the ID of Order is tagged lock:"id"
//	}
//
// A list is a key for each of its elements, all or none, and two carts with the same products
// never wait for each other in a circle:
//
//	order := decorator.WithLock(locks, core.Policy{Keys: []string{"stock:{Items[].SKU}"}}, svc.Order)
//
// So templates look alike over all surfaces, and a field can be renamed without them.
//
// # Where to decorate
//
// Only calls that go through the returned function are locked: a method that
// calls svc.Deduct directly is not. Decorate where the service is put together,
// and hand out nothing else. A transaction belongs inside the function, so that
// it is committed before the lock is released; [WithLockTx] puts it there, bound to
// the lease and fenced in its database.
//
// # Generated decorators
//
// Functions with several parameters, methods and whole interfaces get their locks from
// directives in the source, by the command
// [github.com/lockaround/lockaround/decorator/lockgen]:
//
//	type Stock interface {
//		//lock:with "stock:{sku}" wait=2s
//		Deduct(ctx context.Context, sku string, n int) (left int, err error)
//	}
//
// gives NewStockWithLock(locks, next), which returns a *StockWithLock, a Stock around next, and
// an error if locks or next is nil, or a directive asks for what the engine's driver does not
// offer. Its methods behave as functions do here. The command
// [github.com/lockaround/lockaround/decorator/lockvet] finds calls that go round the lock.
//
// # Work that must happen once
//
// Package cache puts a cache before a function: one caller of all processes refills it, while the
// others wait or take a stale value.
//
// Package job runs each tick of a schedule on one of several replicas, under any scheduler.
// examples/extra/jobs does so with robfig/cron and gocron, and kills a replica in a run.
//
// Package leader lets one process of several lead, until it resigns, ends or dies.
//
// Package serial accepts a call at once and runs it later: the calls of one key one after the other, in order, spaced,
// with retries.
//
// # Errors
//
// If the function did not run, the result is the zero value and the error is a
// [*core.Error]: [core.ErrBusy] or [core.ErrTimeout] if the key stayed taken,
// [core.ErrKey] if the argument lacks a value, [core.ErrUnavailable] if the
// store cannot be reached, and so on. A function is never run unlocked, but where [When] or
// the policy's AllowEmpty say so. A handler that calls
// the function answers such an error by middleware.Answer, httplock.Answer or
// interceptor.Status.
//
// If it ran, its result and its error come back as they are. A call that
// returned no error although its lease had ended meanwhile returns its result
// together with [core.ErrLost] or [core.ErrMaxHold]: the work was done, but
// perhaps not alone. The context that the function gets is cancelled with that
// cause, and [core.LeaseFrom] finds the lease and its fencing token in it.
//
// # Files
//
// decorator.go puts a lock around a function, tx.go a lock around a transaction.
package decorator
