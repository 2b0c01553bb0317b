package wrong

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/policies"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/redlock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/job"
	"github.com/lockaround/lockaround/examples/stock/stockpb"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/lockpb"
	"github.com/lockaround/lockaround/middleware"
	"github.com/lockaround/lockaround/middleware/httplock"
)

// What the code of the cases is about.
var (
	ctx   = context.Background()
	locks *core.Engine // at memlock
)

type order struct {
	SKU   string
	Price float64
	Lines []string
}

func sell(context.Context, order) error { return nil }

// group are cases of one kind. The page shows the code of each, from this file.
type group struct {
	title string
	cases []wrongUse
}

type wrongUse struct {
	title string
	do    func() error
}

var groups = []group{
	{"Policies", []wrongUse{
		{"No key", func() error {
			return locks.Do(ctx, core.Policy{Wait: time.Second}, work)
		}},
		{"A duration without its unit", func() error {
			return locks.Do(ctx, core.Policy{Key: "report", Name: "report", Wait: 2}, work)
		}},
		{"A TTL that no driver can keep", func() error {
			return locks.Do(ctx, core.Policy{Key: "report", Name: "report", TTL: time.Millisecond}, work)
		}},
		{"A semaphore of nobody", func() error {
			return locks.Do(ctx, core.Policy{Key: "exports", Name: "exports", Mode: core.Semaphore}, work)
		}},
		{"A limit of a lock that has none", func() error {
			return locks.Do(ctx, core.Policy{Key: "exports", Name: "exports", Limit: 3}, work)
		}},
		{"Fields that exclude each other", func() error {
			return locks.Do(ctx, core.Policy{Key: "prices", Name: "prices", Mode: core.Shared, Linger: time.Second}, work)
		}},
		{"A MinHold beyond MaxHold", func() error {
			return locks.Do(ctx, core.Policy{Key: "report", Name: "report", MinHold: time.Minute, MaxHold: time.Second}, work)
		}},
		{"More than the driver promises", func() error {
			return locks.Do(ctx, core.Policy{Key: "ledger", Name: "ledger", Tokens: core.DurableTokens}, work)
		}},
		{"A template where a key belongs", func() error {
			return locks.Do(ctx, core.Policy{Key: "stock:{sku}", Name: "stock"}, work)
		}},
		{"A default that makes a policy impossible", func() error {
			locks, err := core.New(memlock.New(), core.WithNamespace("shop"), core.WithDefaults(core.Defaults{MaxHold: time.Second}))
			if err != nil {
				return err
			}
			defer locks.Close()
			return locks.Do(ctx, core.Policy{Key: "report", Name: "report", MinHold: time.Minute}, work)
		}},
	}},
	{"Templates", []wrongUse{
		{"A brace that is not closed", func() error {
			_, err := core.NewGuard(locks, core.Policy{Key: "stock:{SKU"}, core.Fields[order]())
			return err
		}},
		{"Values that could run into each other", func() error {
			_, err := core.NewGuard(locks, core.Policy{Key: "stock:{SKU}{SKU}"}, core.Fields[order]())
			return err
		}},
		{"A misspelt field", func() error {
			_, err := core.NewGuard(locks, core.Policy{Key: "stock:{SKUU}"}, core.Fields[order]())
			return err
		}},
		{"A field that is no part of a key", func() error {
			_, err := core.NewGuard(locks, core.Policy{Key: "stock:{Price}"}, core.Fields[order]())
			return err
		}},
		{"A kind that there is not", func() error {
			_, err := core.NewGuard(locks, core.Policy{Key: "stock:{SKU:integer}"}, core.Fields[order]())
			return err
		}},
	}},
	{"Routes, tables and rules", []wrongUse{
		{"A placeholder that a route cannot fill", func() error {
			_, err := middleware.New(locks, core.Policy{Key: "stock:{sku}"})
			return err
		}},
		{"A parameter that the path lacks", func() error {
			_, err := middleware.NewTable(locks, middleware.Rules{"POST /products/:sku/deduct": {Key: "stock:{path.skuu}"}})
			return err
		}},
		{"gin's syntax in a net/http table", func() error {
			_, err := httplock.NewTable(locks, httplock.Rules{"POST /products/:sku/deduct": {Key: "stock:{path.sku}"}})
			return err
		}},
		{"A rule for no route", func() error {
			table, err := httplock.NewTable(locks, httplock.Rules{"POST /products/{sku}/deduct": {Key: "stock:{path.sku}"}})
			if err != nil {
				return err
			}
			return table.Validate("POST /products/{sku}/refund")
		}},
		{"A route that lacks the parameter of its lock", func() (err error) {
			r := gin.New()
			r.POST("/deduct", middleware.Lock(locks, core.Policy{Key: "stock:{path.sku}"},
				middleware.WithErrorHandler(func(_ *gin.Context, e error) { err = e })))
			r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/deduct", http.NoBody))
			return err
		}},
		{"A struct that gin cannot bind", func() error {
			_, err := middleware.NewLocked(locks, core.Policy{Key: "stock:{SKU}"}, func(*gin.Context, *order) {})
			return err
		}},
		{"An option given twice", func() error {
			_, err := httplock.New(locks, core.Policy{Key: "stock:{path.sku}"}, httplock.WithBodyLimit(10), httplock.WithBodyLimit(20))
			return err
		}},
		{"A value that no key uses", func() error {
			_, err := httplock.New(locks, core.Policy{Key: "stock:{path.sku}"}, httplock.WithValue("tenant", func(*http.Request) (string, error) { return "", nil }))
			return err
		}},
		{"A list of a query", func() error {
			_, err := httplock.New(locks, core.Policy{Keys: []string{"stock:{query.ids[]}"}})
			return err
		}},
		{"A misspelt gRPC method", func() error {
			_, err := interceptor.New(locks, interceptor.Rules{"/stock.v1.Stock/Deducts": {Key: "stock:{sku}"}})
			return err
		}},
		{"A field that the gRPC message lacks", func() error {
			_, err := interceptor.New(locks, interceptor.Rules{stockpb.Stock_Deduct_FullMethodName: {Key: "stock:{SKU}"}})
			return err
		}},
		{"A server without the service of a rule", func() error {
			li := interceptor.Lock(locks, interceptor.Rules{stockpb.Stock_Deduct_FullMethodName: {Key: "stock:{sku}"}})
			return li.Validate(grpc.NewServer())
		}},
	}},
	{"Options in .proto files", []wrongUse{
		{"A misspelt field", func() error {
			return fromProto(&lockpb.Lock{Key: "stock:{skuu}"})
		}},
		{"Two ways to wait", func() error {
			return fromProto(&lockpb.Lock{Key: "stock:{sku}", Wait: seconds(2), WaitForever: true})
		}},
	}},
	{"Functions and jobs", []wrongUse{
		{"No function", func() error {
			_, err := decorator.New[order, int](locks, core.Policy{Key: "stock:{SKU}"}, nil)
			return err
		}},
		{"An argument's field that is a list", func() error {
			_, err := decorator.NewErr(locks, core.Policy{Key: "stock:{Lines}"}, sell)
			return err
		}},
		{"A list in the one key of a policy", func() error {
			_, err := decorator.NewErr(locks, core.Policy{Key: "stock:{Lines[]}"}, sell)
			return err
		}},
		{"What is no list", func() error {
			_, err := decorator.NewErr(locks, core.Policy{Keys: []string{"stock:{SKU[]}"}}, sell)
			return err
		}},
		{"Two lists in one template", func() error {
			_, err := decorator.NewErr(locks, core.Policy{Keys: []string{"{Lines[]}:{Gifts[]}"}}, sell)
			return err
		}},
		{"Empty lists where there is no list", func() error {
			_, err := decorator.NewErr(locks, core.Policy{Key: "stock:{SKU}", AllowEmpty: true}, sell)
			return err
		}},
		{"A call with an empty list", func() error {
			sell := decorator.WithLockErr(locks, core.Policy{Name: "sell", Keys: []string{"stock:{Lines[]}"}}, sell)
			return sell(ctx, order{})
		}},
		{"A call with an element that has no value", func() error {
			sell := decorator.WithLockErr(locks, core.Policy{Name: "sell", Keys: []string{"stock:{Lines[]}"}}, sell)
			return sell(ctx, order{Lines: []string{"book", ""}})
		}},
		{"A condition on another argument", func() error {
			_, err := decorator.NewErr(locks, core.Policy{Key: "stock:{SKU}"}, sell, decorator.When(func(sku string) bool { return sku != "" }))
			return err
		}},
		{"A job that waits for nothing", func() error {
			_, err := job.New(locks, core.Policy{Key: "nightly", Wait: time.Second}, work, job.Schedule{Every: time.Hour})
			return err
		}},
	}},
	{"Files of overrides", []wrongUse{
		{"A misspelt field, a number without a unit and a misspelt mode", func() error {
			_, err := policies.Parse([]byte("policies:\n  stock: {wiat: 2s, ttl: 10, mode: sharde}\n"))
			return err
		}},
		{"A field that is the program's", func() error {
			_, err := policies.Parse([]byte("policies:\n  stock: {fairness: strict}\n"))
			return err
		}},
		{"A misspelt policy", func() error {
			locks, err := core.New(memlock.New(), core.WithNamespace("shop"), core.WithOverrides(map[string]core.Override{"stok": {}}))
			if err != nil {
				return err
			}
			defer locks.Close()
			if err := locks.Do(ctx, core.Policy{Key: "stock:A", Name: "stock"}, work); err != nil {
				return err
			}
			return locks.CheckOverrides()
		}},
		{"Another mode while the program runs", func() error {
			locks, err := core.New(memlock.New(), core.WithNamespace("shop"), core.WithOverrides(map[string]core.Override{}))
			if err != nil {
				return err
			}
			defer locks.Close()
			return locks.ReplaceOverrides(map[string]core.Override{"stock": {Mode: new(core.Shared)}})
		}},
	}},
	{"Drivers and engines", []wrongUse{
		{"No driver", func() error {
			_, err := core.New(nil)
			return err
		}},
		{"A client that is nil", func() error {
			var rdb *redis.Client
			_, err := core.New(redislock.New(rdb), core.WithNamespace("shop"))
			return err
		}},
		{"A quorum of two", func() error {
			a, b := redis.NewClient(&redis.Options{Addr: "a:6379"}), redis.NewClient(&redis.Options{Addr: "b:6379"})
			defer a.Close()
			defer b.Close()
			_, err := core.New(redlock.New([]*redis.Client{a, b}), core.WithNamespace("shop"))
			return err
		}},
		{"A namespace with a slash", func() error {
			_, err := core.New(memlock.New(), core.WithNamespace("shop/prod"))
			return err
		}},
	}},
	{"At run time", []wrongUse{
		{"An engine that is nil", func() error {
			var locks *core.Engine
			return locks.Do(ctx, core.Policy{Key: "report", Name: "report"}, work)
		}},
		{"A context that is nil", func() error {
			return locks.Do(nil, core.Policy{Key: "report", Name: "report"}, work) //nolint:staticcheck // which is the wrong use
		}},
		{"A lock within itself", func() error {
			report := core.Policy{Key: "report", Name: "report"}
			return locks.Do(ctx, report, func(ctx context.Context) error {
				return locks.Do(ctx, report, work)
			})
		}},
		{"A key that is taken, of a policy that does not wait", func() error {
			report := core.Policy{Key: "report", Name: "report"}
			return locks.Do(ctx, report, func(context.Context) error {
				return locks.Do(ctx, report, work) // not with the context that it was given
			})
		}},
		{"The same without a Name", func() error {
			report := core.Policy{Key: "report"}
			return locks.Do(ctx, report, func(context.Context) error {
				return locks.Do(ctx, report, work)
			})
		}},
		{"A value that is missing", func() error {
			stock, err := core.NewGuard(locks, core.Policy{Key: "stock:{SKU}"}, core.Fields[order]())
			if err != nil {
				return err
			}
			return stock.Do(ctx, order{}, work)
		}},
		{"A lease released twice", func() error {
			lease, err := locks.Acquire(ctx, core.Policy{Key: "report", Name: "report"})
			if err != nil {
				return err
			}
			return errors.Join(lease.Release(ctx), lease.Release(ctx))
		}},
		{"A lease that was none", func() error {
			lease, _ := core.LeaseFrom(ctx)
			return lease.Check(ctx)
		}},
		{"Code that needs a lock, called without", func() error {
			return core.AssertHeld(ctx, "report")
		}},
		{"An engine that is closed", func() error {
			locks, err := core.New(memlock.New(), core.WithNamespace("shop"))
			if err != nil {
				return err
			}
			if err := locks.Close(); err != nil {
				return err
			}
			return locks.Do(ctx, core.Policy{Key: "report", Name: "report"}, work)
		}},
	}},
}

func work(context.Context) error { return nil }
