// Package interceptor puts distributed locks around gRPC methods, at servers and
// at clients.
//
//	li := interceptor.Lock(locks, interceptor.Rules{
//		"/stock.v1.Stock/Deduct": {Key: "stock:{sku}", Wait: 2 * time.Second},
//	})
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(li.UnaryServer()),
//		grpc.ChainStreamInterceptor(li.StreamServer()))
//	stockpb.RegisterStockServer(server, stock)
//	if err := li.Validate(server); err != nil { … }
//
// The lock is taken before the handler runs and released after it has returned or
// panicked. A call whose lock cannot be had gets an error: nothing ever runs
// unlocked, unless [WithFilter] or the policy's AllowEmpty says so. A method without a
// rule is not locked;
// [Interceptor.Validate] finds rules for methods that do not exist.
//
// # Locks in the .proto file
//
// The lock of a method can stand where the method does:
//
//	import "lockaround/v1/lock.proto";
//
//	service Stock {
//	  rpc Deduct(DeductRequest) returns (DeductResponse) {
//	    option (lockaround.v1.lock) = {
//	      key: "stock:{sku}:{warehouse.id}"
//	      wait: { seconds: 2 }
//	      ttl: { seconds: 10 }
//	      mode: EXCLUSIVE
//	    };
//	  }
//	}
//
// The fields are those of core.Policy; lock.proto describes each. [FromProto] takes the
// place of New, and what is said here of rules holds for options:
//
//	li := interceptor.FromProto(locks)
//
// It reads the options of every service that is linked into the program, checks each key
// against its method's message, and panics with all that is wrong, by file, service and
// method. [WithRules] replaces the whole option of a method from within the program or
// adds a method's lock, and [WithFiles] adds descriptors that are not linked. The option
// alone locks nothing: a server without the interceptor runs the methods unlocked.
// examples/extra/orders is a service with such options.
//
// With protoc, lock.proto is found in the module's folder, of the very release that the
// program uses:
//
//	protoc -I proto -I "$(go list -m -f '{{.Dir}}' github.com/lockaround/lockaround)/interceptor/lockpb" \
//		--go_out=. --go_opt=module=example.com/shop \
//		--go-grpc_out=. --go-grpc_opt=module=example.com/shop \
//		stock/v1/stock.proto
//
// The folder is there once go mod download, or a build, has fetched the module; with a
// vendor folder, add -mod=mod to go list. protoc also needs its own google/protobuf
// files, which Debian has in libprotobuf-dev. lock.proto itself is not to be compiled:
// generated code imports package lockpb.
//
// With buf, which takes only folders of its workspace, copy the file first; it needs no
// account at a registry. In a shell:
//
//	buf export "$(go list -m -f '{{.Dir}}' github.com/lockaround/lockaround)/interceptor/lockpb" -o third_party
//
// in buf.yaml:
//
//	version: v2
//	modules:
//	  - path: proto
//	  - path: third_party
//	lint:
//	  ignore:
//	    - third_party
//
// and in buf.gen.yaml, beside its plugins, so that code is generated for your own files
// only, and managed mode, if you use it, leaves the import path of package lockpb as it
// is:
//
//	version: v2
//	inputs:
//	  - directory: proto
//	managed:
//	  enabled: true
//	  disable:
//	    - file_option: go_package
//	      path: lockaround/v1
//
// # Where the key comes from
//
//	{sku}           a field of the message, by its name in the .proto
//	{order.id}      a field of a message in it
//	{items[].sku}   a field of each element of a repeated one, in Policy.Keys
//	{first.room}    a field of the first message, where the client may send several
//	{meta.tenant}   metadata: what came with the call, or at a client goes with it
//	{name}          what the function given with WithValue returns
//
// A field is a string, an integer, a bool or an enum, which counts by its number;
// messages, bytes, floating-point numbers and maps are refused when the rules are
// compiled. {items[].sku} in Policy.Keys is a key for each element of a repeated field,
// sorted and once, and {skus[]} the elements themselves; core.NewGuard says more. An empty string is missing, and so is an optional
// field, a part of a oneof or a field of a message that is not set; other numbers
// that are not set cannot be told from 0, and are 0. Metadata that is missing,
// empty or given twice is refused. A field called meta can only be had with
// [WithValue], and so can one called first of a client's stream.
//
// Fields have types, so that equal values have one key. Metadata is text, of which
// the spelling counts: 1, 01 and +1 are three keys. Give a placeholder of what is not
// text a kind, {meta.shop:int}; core.NewGuard lists them. Text that does not parse is
// refused.
//
// # Streams
//
// The lock is held while a stream's handler runs. If the key needs a field, the
// first message is received before the lock is asked for, and handed to the
// handler at its first Recv: nothing is lost, but a handler that speaks before it
// listens is not reached before its client has spoken. Give the method of such a
// server a key of metadata. A message that the handler receives into a type of its
// own must be the same message.
//
// A client that may send several messages has one key for all of them: that of the
// first, which {first.room} says. Later messages are handled under it as well, so the
// handler refuses those that are for something else.
//
// The end of a lease does not wake a handler that waits in Recv or Send, which go by
// gRPC's own context: it learns of it when the next message comes, or watches its
// stream's Context beside.
//
// # The context
//
// The handler's context is cancelled with cause core.ErrLost, core.ErrMaxHold or
// core.ErrClosed if the lease ends before the handler returns, and core.LeaseFrom
// finds the lease in it. A cancelled call does not end the lock: the handler may be
// in the middle of its commit. Interceptors that bound a call's time go before this
// one, so that their deadlines bound the waiting as well.
//
// The handler's context ends, too, when the client hangs up. Work that must be done
// whole once it has begun takes a context that ends with the lock alone:
//
//	lease, ok := core.LeaseFrom(ctx)
//	if !ok { // lost already
//		return nil, context.Cause(ctx)
//	}
//	whole := lease.Context(context.WithoutCancel(ctx))
//
// # Locks inside of the handler
//
// A lock that the handler takes by itself, by Engine.Do or a function of package decorator, is
// not the interceptor's: gRPC makes UNKNOWN of a *core.Error. [Status] makes of it the status
// that this package gives:
//
//	return nil, interceptor.Status(err)
//
// Take the lock before doing anything that has an effect, since clients repeat UNAVAILABLE
// and ABORTED unasked. Let all callers take keys in one order; a key that the
// call holds already is taken again only by a policy that is Reentrant.
//
// # Clients
//
// [Interceptor.UnaryClient] holds the lock from before the call is sent until its
// reply is in; retries that the connection makes by itself are inside. There are no
// locks around a client's streams. Give a
// client rules and an interceptor of its own. One of FromProto belongs to servers: a
// client that took the lock of an option would keep the server, which takes it too, from
// ever having it.
//
// # Idempotency
//
// A lock keeps two calls apart, and not a call from running twice that its client sends again, as after a
// time-out. [Idempotent] gives a repeated call the answer of the first:
//
//	once := interceptor.Idempotent(locks, interceptor.IdempotentRules{
//		"/shop.v1.Payments/Charge": {
//			Lock: core.Policy{Key: "pay:{account}:{meta.idempotency-key}", Wait: 5 * time.Second},
//			Once: idempotent.Policy{Died: idempotent.Refuse},
//		},
//	}, records, interceptor.WithValue("account", account))
//	server := grpc.NewServer(grpc.ChainUnaryInterceptor(authenticate, once.UnaryServer()))
//
// In a .proto, which [FromProto] reads if [WithRecords] gives it the store:
//
//	option (lockaround.v1.lock) = {
//	  key: "pay:{account}:{meta.idempotency-key}"
//	  wait: { seconds: 5 }
//	  idempotent: { died: REFUSE }
//	};
//
// A client makes up a key for each purpose, and sends the same one however often it tries:
//
//	ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", uuid.NewString())
//
// In these rules {meta.idempotency-key} is read by idempotent.ParseKey: "8e03978e" with its quotes is
// the same as without. Any other placeholder will do as well, such as a field {request_id}. The key has
// to name the caller, too, and should do so by what an interceptor before this one has found out:
// {account} above is a function given with WithValue. A key of {meta.idempotency-key} alone is refused
// unless AnyCaller is set.
//
// What is promised:
//
//   - Calls with one key run one at a time. Once one has been answered the others get its response, or
//     its status with the details, and the trailer idempotent-replayed: true. Their handler does not
//     run.
//   - The same key with another method or another message is an INVALID_ARGUMENT. Metadata is not
//     compared.
//   - A client that hangs up, or whose deadline passes, does not end the run: the handler's context has
//     no deadline and ends with the lease alone. A MaxHold bounds it. The answer is there when the
//     client asks again.
//   - If the store of the records does not answer, no handler runs.
//   - If a run has died, Died says what a repeated call gets: another run, or FAILED_PRECONDITION until
//     [Interceptor.Forget]. Dead is one that panicked, whose process crashed, or whose lock had ended,
//     and one that returned an error of a lock within which leaves open what it has done.
//
// These statuses of a handler are kept: INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED,
// FAILED_PRECONDITION, OUT_OF_RANGE. After any other the next call runs: they are about the moment, the
// server or the credentials. [WithKept] chooses others.
//
// What is not promised:
//
//   - A handler that returns a status which is not kept says by it that nothing has happened that a
//     second run would repeat. If it does not know, as after a time-out of its database, it finds out,
//     panics, or has the status kept. An interceptor that makes INTERNAL of a panic goes before this
//     one, which has to see it.
//   - Headers and trailers that the handler has set are not replayed, and interceptors behind this one
//     do not see calls that are.
//   - A response above MaxBytes, or one that is no message of the method's type, is not kept: the first
//     call gets it, and a repeated one a FAILED_PRECONDITION.
//   - Messages are compared by how they are encoded. Those of a client with newer fields than the
//     server knows may be encoded in two ways by two releases of the server, and are two messages to
//     them then.
//   - Streams do not run once: a rule for one is refused, by [NewIdempotent] if the service is linked,
//     by Validate, or when it is called.
//
// The methods of a table of [Idempotent] need a description, as that of generated code, since answers
// are read by it. Beside the statuses below there are
//
//	idempotent.ErrMismatch      INVALID_ARGUMENT      IDEMPOTENCY_MISMATCH
//	idempotent.ErrUnknown       FAILED_PRECONDITION   IDEMPOTENCY_UNKNOWN
//	idempotent.ErrNoReplay      FAILED_PRECONDITION   IDEMPOTENCY_NO_REPLAY, logged if it cannot be read
//	idempotent.ErrUnavailable   UNAVAILABLE           IDEMPOTENCY_UNAVAILABLE, with RetryInfo
//
// and for a call whose first one is still under way those of ErrBusy and ErrTimeout. Package idempotent
// says what it costs, and what a store has to promise.
//
// # Behind another service
//
// A service that is called by those who hold the lock need not take it: it checks
// their fencing tokens. [Tokens] sends them with calls, and a [Fence] refuses a
// call without the token of its key's lock or with a stale one:
//
//	guarded := interceptor.Fence(guard, interceptor.FenceRules{"/stock.v1.Stock/Deduct": "stock:{sku}"})
//
// That comes before the handler reads; what it writes to needs a guard in the step
// that writes as well, as package core/fence has them for SQL, Redis and memory. A token is not a proof:
// anyone outside could send a number so large that no true holder is admitted again.
// Remove the metadata fencing-token at the edge of your network.
//
// # What a caller sees
//
// Statuses carry an ErrorInfo with domain [ErrorDomain] and a reason. They hold no
// values, no text of the store and nothing about the holder. In the process that
// took the lock, errors.Is and errors.As find the *core.Error in them.
//
//	core.ErrBusy             ABORTED            LOCK_BUSY, with RetryInfo of 1 to 3 s
//	core.ErrTimeout          ABORTED            LOCK_TIMEOUT, likewise
//	core.ErrFull             RESOURCE_EXHAUSTED LOCK_FULL, likewise
//	the caller's deadline    DEADLINE_EXCEEDED  DEADLINE_EXCEEDED
//	the caller's cancelling  CANCELLED          CANCELLED
//	core.ErrUnavailable      UNAVAILABLE        LOCK_UNAVAILABLE
//	core.ErrClosed           UNAVAILABLE        LOCK_CLOSED
//	core.ErrKey              INVALID_ARGUMENT   LOCK_KEY_INVALID, with a BadRequest that names the placeholder
//	core.ErrPolicy           INTERNAL           LOCK_POLICY, logged
//	core.ErrDeadlock         INTERNAL           LOCK_DEADLOCK, logged
//	core.ErrNotHeld          INTERNAL           LOCK_NOT_HELD, logged
//	any other                INTERNAL           LOCK_FAILED, logged
//
// These are for calls that never ran; an error of the handler passes through as it
// is; [Status] is for one of a lock that it took by itself. If the lease ends while the handler
// runs and the handler returns nil, or an error that only says that its context was
// cancelled, the call fails with INTERNAL and LOCK_LOST, LOCK_MAX_HOLD or
// LOCK_CLOSED, without RetryInfo, and that is logged: it may have had an effect. Any other
// error of the handler wins. [WithErrorMapper] replaces all of this.
//
// # What may be sent again
//
// ABORTED, UNAVAILABLE, RESOURCE_EXHAUSTED and DEADLINE_EXCEEDED are of calls that have not run, and
// a client's retry policy may name them; QUEUE_UNAVAILABLE, below, and "out of time" of a queue are
// of calls that may be queued, which an ItemID made of the request keeps from being queued twice.
//
// A call that may have had an effect has the trailer grpc-retry-pushback-ms: -1: one whose lease has
// ended, whatever its handler or an error mapper says then, and one whose handler returns an error of a
// lock that [core.FailureOf] calls Unconfirmed or Ended. With it, gRPC's clients do not repeat
// the call, whatever codes their service config names (gRFC A6), and send no further copies of one that
// they hedge. Copies that are under way wait for each other's lock; if it is lost, the next one runs: do not
// hedge what must not run twice. Clients and proxies that do not know the trailer go by the
// code: do not have them repeat INTERNAL. The README of package core has a table of all answers.
//
// # Queues
//
// [Enqueue] queues a call in place of working on it, see serial.Must. [Status] makes of
// the errors of a queue:
//
//	queue.ErrFull            RESOURCE_EXHAUSTED   QUEUE_FULL, with RetryInfo
//	queue.ErrItem            INVALID_ARGUMENT     QUEUE_ITEM
//	queue.ErrUnknown         NOT_FOUND            QUEUE_ITEM_UNKNOWN
//	queue.ErrNotParked       FAILED_PRECONDITION  QUEUE_NOT_PARKED
//	queue.ErrUnavailable     UNAVAILABLE          QUEUE_UNAVAILABLE
//	queue.ErrDamaged         UNAVAILABLE          QUEUE_UNAVAILABLE, logged
//
// # Shutting down
//
// Let running calls end before their locks do: Server.GracefulStop, then
// Engine.Shutdown, then Engine.Close. Server.Stop returns while handlers still run
// unless grpc.WaitForHandlers is set, and Close then ends their leases.
//
// # Files
//
// interceptor.go puts locks around calls and streams. idempotent.go runs calls once, and has the form in which their
// answers are stored. rules.go has the table of rules, proto.go reads
// them from the options of .proto files. field.go finds what a key is made of, in messages and in
// metadata. fence.go checks tokens and sends them. status.go has what a caller sees, and option.go
// what can be set.
package interceptor
