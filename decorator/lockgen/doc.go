// Lockgen generates code that puts distributed locks around functions, methods and the
// methods of interfaces, from directives in their comments:
//
//	//go:generate go tool -modfile=../tools.mod lockgen
//
//	type Stock interface {
//		// Deduct takes n units of an article.
//		//
//		//lock:with "stock:{sku}" wait=2s ttl=10s
//		Deduct(ctx context.Context, sku string, n int) (left int, err error)
//
//		Name() string
//	}
//
// gives a type StockWithLock that implements Stock around another one of it:
//
//	locks, err := core.New(redislock.New(rdb), core.WithNamespace("shop:prod"))
//	…
//	shelf, err := NewStockWithLock(locks, realShelf)
//	…
//	left, err := shelf.Deduct(ctx, "A-1", 2) // holds the lock of stock:A-1
//
// A call renders the key from its arguments, waits for the lock as the directive says,
// runs while holding it, and releases it when it returns or panics. What is guaranteed is
// what [github.com/lockaround/lockaround/decorator] guarantees for a function; the errors
// are the same, and the context of the call carries the lease. The code is as fast as a
// lock taken by hand, and uses no reflection.
//
// # Installation
//
//	go mod init -modfile=tools.mod example.com/shop/tools # once, beside go.mod
//	go get -modfile=tools.mod -tool github.com/lockaround/lockaround/decorator/lockgen@latest
//	go tool -modfile=tools.mod lockgen ./...
//
// tools.mod and tools.sum are to be committed. They keep what the command requires out of
// go.mod, where go get -tool alone would raise golang.org/x/net, crypto, sys and text for
// the program. Update the command together with the library.
//
// go generate runs in the package's folder, from which the path of tools.mod counts. In a
// workspace it needs GOWORK=off. With a vendor folder it is
//
//	go run -mod=readonly -modfile=tools.mod github.com/lockaround/lockaround/decorator/lockgen ./...
//
// Each package with directives gets a file lock_gen.go, to be committed; -o gives it another
// name. Where no directive is left lockgen removes its file. In continuous integration
//
//	go tool -modfile=tools.mod lockgen -check ./...
//
// fails if a file is not what lockgen would write; the version in its first line may differ.
// Generated code compiles only with a
// library that it goes with: otherwise a constant such as decorator.SupportsLockgen1 is
// undefined, and go generate cures it.
//
// # Directives
//
// A directive is a line of the comment right above what it is for, without a blank after
// the slashes: a key template as a Go string, and options.
//
//	directive = "//lock:with" template { option } .
//	template  = interpreted or raw Go string .
//	option    = name [ "=" value ] .
//	value     = characters without blanks, or a Go string .
//
// The options are the fields of [github.com/lockaround/lockaround/core.Policy], which says
// more about each, but for when, once and keep; durations are written as in Go.
//
//	wait=2s             how long to wait for a key that is taken; forever is as long as
//	                    the context lives; 0s fails at once; so does a call without it,
//	                    unless the engine has core.WithDefaults
//	maxwaiting=100      with a wait: how many may wait for the key; one more fails at once
//	ttl=10s             how long the key stays taken when its process dies (30s)
//	mode=shared         or semaphore, with limit=3, or exclusive, as without it
//	name=deduct         what errors and telemetry call the lock; else the template
//	maxhold=1m          ends the hold after that long; 0s never, whatever the defaults
//	minhold=5s          keeps the key taken for that long at least
//	linger=1s           keeps the lease in the process for that long after a call
//	norenew             lets the lease end after ttl whatever the call does
//	reentrant           lets a call that holds the key take it again
//	fairness=strict     or balanced, as without it
//	tokens=durable      or clock: what fencing tokens have to keep
//	release=sent        or confirmed, as without it: whether a call waits until the
//	                    store has confirmed the release
//	allowempty          lets a call go without the key of a list that is empty, and
//	                    without a lock if it has no other key
//	when=needsLock      asks that function or method at each call, and lets the call go
//	                    without a lock where it returns false
//	once=refuse         lets a call run once for each key; refuse, rerun or tx says what a
//	                    repeated call gets if the first has died
//	keep=24h            with once: how long the results are kept for repeated calls (24h)
//
// Several directives on one function are several keys, all or none; the options stand on
// one of them:
//
//	//lock:with "account:{from}" wait=5s
//	//lock:with "account:{to}"
//	Transfer(ctx context.Context, from, to AccountID, cents int64) error
//
// So is a list: {cart.Lines[].SKU} is a key for each element of a slice or an array, each once,
// and {skus[]} for the elements themselves, also of a variadic parameter. A template has one
// list; [github.com/lockaround/lockaround/core.NewGuard] says more.
//
//	//lock:with "cart:{cart.ID}" wait=5s
//	//lock:with "stock:{cart.Lines[].SKU}"
//	Sell(ctx context.Context, cart *Cart) error
//
// They are taken in sorted order, so that callers never wait for each other in a circle,
// unless a caller holds one of them already and comes in with reentrant: let it take
// all of them at once instead.
//
// The condition of when is a function of the package, or a method of what the lock goes around.
// It takes what the guarded function takes, without the context, and returns a bool:
//
//	//lock:with "stock:{cart.Lines[].SKU}" when=NeedsLock
//	Sell(ctx context.Context, cart *Cart) error
//
//	NeedsLock(cart *Cart) bool
//
// It is as [github.com/lockaround/lockaround/decorator.When]: where it returns false the call
// runs UNLOCKED, beside any holder, with the caller's context as it is. It has to return true
// wherever there is doubt. If it panics, so does the call, which does not run.
//
// Give each lock a name if an operator may change it by a file, as
// [github.com/lockaround/lockaround/core.WithOverrides] does: templates are names, too, and
// a reader and a writer of one key share theirs.
//
// # Calls that run once
//
// A lock keeps two calls of a key apart, and not one that is sent again from having its effect
// twice. With once it has it once: a repeated call gets the results of the first, as
// [github.com/lockaround/lockaround/decorator/idempotent] says, which has the modes as well.
//
//	//lock:with "pay:{account}:{id}" wait=5s once=refuse keep=48h
//	Charge(ctx context.Context, account, id string, cents int64) (Receipt, error)
//
// The constructor takes the store of the records after the engine:
//
//	shop, err := NewShopWithLock(locks, idempotent.NewMemory(10_000), realShop)
//	…
//	receipt, err := shop.Charge(ctx, "A-1", "8e03978e", 100) // again: the same receipt
//
// All arguments have to be equal then; others under the same key are an
// idempotent.ErrMismatch. An error is returned and not kept, so that the next call runs. The
// function does not end with the caller's context.
//
// Arguments and results go by encoding/json, which leaves out fields that are not exported. What
// it cannot encode is a fault: functions, channels, unsafe pointers, complex numbers and structs
// without exported fields, unless their type says how; and so is a result that is an interface, which
// it cannot decode. There is one key, without a list, and it is exclusive: no mode, reentrant,
// minhold or when.
//
// # Keys
//
// {sku} is a parameter, {order.Customer.ID} a field of one, by its Go name or its lock
// tag, as [github.com/lockaround/lockaround/core.Fields] describes. It is a string, an
// integer or a bool, or a type of that kind; of a type parameter, all types must be so.
// Pointers are followed. A nil on the way and an empty string make the call fail with
// core.ErrKey, before it runs and without a request to the store. Fields that are not
// exported can be named where the package can name them, but have no tags. A string in
// which case does not count, or that is a number, has a kind: {user:lower}, {id:int}, see
// [github.com/lockaround/lockaround/core.NewGuard].
//
// # What is generated
//
// The function has a context.Context for its first parameter and an error for its last
// result. It is
//
//   - a method of an interface Stock: a type StockWithLock with all methods of Stock, and
//     NewStockWithLock(locks *core.Engine, next Stock) (*StockWithLock, error).
//   - a method of a type Shelf, by value or by pointer: a type ShelfWithLock with all
//     methods of *Shelf, and NewShelfWithLock(locks *core.Engine, next *Shelf).
//   - a function Refill: RefillLocked(locks *core.Engine) (func(…) …, error), which returns
//     Refill with a lock around it, in its own type. A generic one is instantiated there:
//     RefillLocked[string](locks).
//
// Where a directive has once, the constructor has a second parameter, records idempotent.Store.
//
// Names of what is not exported begin in lower case: newStockWithLock. A constructor's
// error is a core.ErrPolicy; that is to say that the engine, records or next is nil, or that
// the driver or the records do not offer what a directive asks for.
//
// A type with a directive of its own also has the locks of what it embeds of its package,
// interfaces and structs; types of other packages bring none. An interface redeclares a
// method to give it a lock, or another one:
//
//	type Commands interface {
//		redis.UniversalClient
//		//lock:with "transaction" wait=2s
//		Watch(ctx context.Context, fn func(*redis.Tx) error, keys ...string) error
//	}
//
// # What has no lock
//
// Only calls that go through what was generated are locked, so hand out nothing else. The command
// [github.com/lockaround/lockaround/decorator/lockvet] reports calls that do not.
//
//   - Calls for which when or allowempty says so.
//   - Methods without a directive are passed on as they are, also those that only another
//     package could implement, as the servers that gRPC generates have.
//   - Calls that a Shelf makes to methods of its own do not pass through ShelfWithLock.
//   - A ShelfWithLock embeds its *Shelf, and so has the fields of Shelf; a call through a
//     field, such as an embedded struct's method by its full name, has no lock. An
//     interface has no fields.
//
// # What is checked
//
// Lockgen type-checks the packages and reports every fault, at its line and column, and
// what would be right: a template that is malformed or names what there is not, a value
// that can be no part of a key, an option that is unknown or impossible beside another, by
// the very rules of core.NewGuard; and any directive that would do nothing: misspelt, with
// a blank after the slashes, in a block comment, parted from its function by a blank line,
// on a variable or a type, inside of a function, in a test, in a file that is not built
// everywhere. A method without a directive that hides a guarded one of an embedded struct
// is a fault too, since calls of it are not locked. Faults
// have exit status 1 and leave all files as they are; a wrong command line has 2.
//
// Code that uses what is not generated yet, and output that is stale or broken, do not
// stand in the way. Other errors of compilation matter only where they touch a signature
// that has a directive.
//
// # Files
//
// main.go has the flags and writes the files. Package internal/directive reads one comment,
// internal/generate makes the code of a package.
package main
