// Package middleware puts a distributed lock around a gin route.
//
//	r.POST("/products/:sku/deduct",
//		middleware.Lock(locks, core.Policy{Key: "stock:{path.sku}", Wait: 2 * time.Second}), deduct)
//
// The lock is taken before the rest of the handler chain runs and released
// after it has returned or panicked. A request whose lock cannot be had is
// answered and the chain aborted: nothing ever runs unlocked, unless
// [WithFilter] or the policy's AllowEmpty says so.
//
// # Where the key comes from
//
//	{path.sku}         a parameter of the route, as c.Param gives it
//	{query.sku}        a parameter of the URL's query, as c.Query gives it
//	{header.X-Tenant}  a request header, as c.GetHeader gives it
//	{body.order.id}    a value in the request's body, see below
//	{body.items[].sku} a value of each element of a list in it, in Policy.Keys
//	{client.ip}        c.ClientIP() in one spelling, see below
//	{name}             what the function given with WithValue returns
//
// A placeholder is text, and its spelling counts: /orders/1, /orders/01 and /orders/+1
// have three locks, though a handler that parses a number takes them for one order.
// Give what is not text a kind, and equal values have one key; anything else is refused
// with status 400:
//
//	{path.id:int}         1, 01, +1                      {path.id:uuid}        in any form and case
//	{query.at:time}       an instant, in any zone        {header.X-User:lower} in any case
//	{query.all:bool}      1, t, true                     {header.X-User:ascii} in any case, ASCII alone
//	{header.X-Real:ip}    IPv4 and IPv6
//
// core.NewGuard describes them. A database that compares without regard to case,
// accents or trailing blanks takes more for equal than Go does: {…:ascii} is for keys of
// its rows. Or let [Locked] bind the request: it makes the key of the very values that
// the handler gets, by their types.
//
// c.ClientIP() believes X-Forwarded-For from gin's trusted proxies, and these are all
// clients until Engine.SetTrustedProxies is called: then anyone chooses his own lock.
//
// A {path.…} that the route lacks is known to a [Table], which refuses it. [Lock] does not
// know its route: the first request is answered 500 LOCK_POLICY.
//
// A value that is missing, empty or given twice is refused with status 400, and so is a
// query that net/http can parse only in part, for a ";" or a bad "%". The handler has to read the value from the
// same place: one that locks {query.sku} and then uses gin's ShouldBind, which prefers a
// form in the body to the query, acts on a sku that it has not locked.
//
// {body.…} takes application/json, except with GET, for which gin's ShouldBind
// would not look at the body, and application/x-www-form-urlencoded with POST,
// PUT and PATCH. It is read strictly, because decoders differ in what they make
// of doubtful input and a difference is a way round the lock:
//
//   - The body is one JSON value in valid UTF-8, nested at most 128 deep.
//   - On the way to the value, a name that comes twice, also in another case
//     (by Unicode: ſku, and K as the Kelvin sign), is refused, and so is the
//     right name in the wrong case.
//   - The value is a string, true, false or an integer of at most 64 bits. 1.0, 1e0
//     and -0 are refused. Decoding into an interface without UseNumber rounds
//     integers beyond 2^53, and a handler that does so acts on another number than
//     was locked. The text "1" and the number 1 are one key; of text that a handler
//     parses, as by json:",string", the spelling counts.
//   - {body.items[].sku} in Policy.Keys is a value of each element of an array, and
//     {body.skus[]} are the elements themselves. The array is there, and no element is
//     null; what is refused about names counts within each element. [] is an empty
//     list, for which Policy.AllowEmpty counts; null is none, and so is no array at all.
//   - A form is flat, without lists, and bytes that a form has to encode are refused: it could
//     be JSON to a handler that calls ShouldBindJSON.
//   - Other content types, multipart among them, other charsets than UTF-8 and
//     every Content-Encoding are refused. A middleware that decodes the body
//     and removes that header comes before the lock.
//   - gin reads JSON by encoding/json: a program built with gin's tags jsoniter,
//     go_json or sonic cannot have {body.…} in a key. The same goes for a
//     json.API of your own in later releases of gin, which nobody can see.
//
// # A table for a whole router
//
// [Rules] put the policies of all routes in one place, which may be a
// configuration file:
//
//	table, err := middleware.NewTable(locks, middleware.Rules{
//		"POST /products/:sku/deduct": {Key: "stock:{path.sku}", Wait: 2 * time.Second},
//		"/refunds/:id":               {Key: "refund:{path.id:int}"}, // all methods
//	})
//	r.Use(table.Handler()) // before the routes
//	…
//	err = table.Validate(r.Routes()) // after them
//
// [NewTable] finds a fault of every rule at once, and [Table.Validate] the
// rules that are for no route. Nothing can tell that a route was registered
// before Use, or in a group that does not use the table: such a route has no
// lock.
//
// # A handler that takes a struct
//
// [Locked] binds the request, makes the key of the fields of what came out, and
// calls its function with the very same value. There is no second decoder that
// could take the request for something else. It binds as gin's c.ShouldBind does:
// with GET the query; otherwise, by Content-Type as written, JSON, XML or a multipart
// form; and for all other types the query and the form in the body, of which the body's
// values come first. Of several values for one field the first counts.
//
// A body is decoded only in the formats that the tags of the struct name, JSON if they
// name none, and those given with [WithFormats]; one of another Content-Type is refused, or of
// none, except with GET. If the struct has
// only tags of the path and of headers, the body is left to the function. YAML and TOML,
// which gin decodes too, are refused: in both a few kilobytes can cost a server gigabytes
// or minutes. So are protocol buffers, MessagePack and BSON.
//
//	type deduction struct {
//		SKU   string `uri:"sku"`
//		Units int    `json:"units" binding:"required,min=1"`
//	}
//	r.POST("/products/:sku/deduct",
//		middleware.Locked(locks, core.Policy{Key: "stock:{SKU}"}, func(c *gin.Context, d deduction) { … }))
//
// A list of the struct is a key for each element, as {Items[].SKU} in Policy.Keys: of the elements
// that the function gets, whatever the body has called them. What was sent as null, or not at all,
// is an empty list there.
//
// A field may have a name of its own for the key, by a lock tag: {sku} is a field
// tagged lock:"sku", see core.Fields. It says nothing about where the value comes from.
//
// Then the request's headers fill the fields with a header tag, and the route's
// parameters those with a uri tag: the path wins over a header, and a header
// over the body or query. A tag's default counts if none of them has the value.
// All of gin's binding tags are checked once, at the end.
//
// A field that has some of the tags json, xml, yaml, toml, form, header and uri
// is filled from these sources and no others, not even under its Go name; "-" is
// a tag, and names none. A field without any is filled as the fields around it,
// from the body or query under its Go name. This holds for Req and the structs
// in it, not for elements of slices and maps. A malformed value
// for a field that it does not fill may still be refused.
//
// An empty body fills nothing, whatever its type. A body that is bound has to be
// within [WithBodyLimit], files included, and is refused with 413 otherwise; one
// that is not bound is treated as below. The function finds the body unread, the
// forms parsed, and the temporary files of a multipart form until it returns.
//
// # The body
//
// A body of known length up to 1 MiB ([WithBodyLimit]) is read before the lock
// is waited for, whether or not the key needs it: net/http notices that an
// HTTP/1 client has gone only once the body was read, and a slow upload must not
// hold a lock. Larger bodies, and those of unknown length, stay unread, so a
// request with one waits for its turn even when its client has gone, and holds the lock
// for as long as its client takes to send what the handlers read: bound that by
// http.Server.ReadTimeout, or by MaxHold. A key with {body.…} needs the whole body, and one over the limit is refused with 413.
//
// The handlers find the body as it came, in Request.Body and also under
// gin.BodyBytesKey, unless it has a Content-Encoding: gin's ShouldBind… and
// ShouldBindBodyWith… both work, also one after the other. A middleware behind
// the lock that rewrites Request.Body for ShouldBindBodyWith… has to set
// gin.BodyBytesKey too.
//
// # The context
//
// c.Request.Context() of the handlers behind the lock is cancelled with cause
// core.ErrLost, core.ErrMaxHold or core.ErrClosed if the lease ends before they
// return, and core.LeaseFrom finds the lease in it. core.LeaseFrom(c) works too.
// But c itself, used as a context, ends and carries the request's values only if
// gin's Engine.ContextWithFallback is set; the first request through a lock
// without it logs a warning.
//
// The lock covers the run of the chain. A goroutine that the handler leaves
// behind runs without it: it needs core.Detach and a lock of its own and, like
// every goroutine, c.Copy in place of c. Nor does the lock cover a hijacked
// connection after the handler has returned. After the run c.Request
// is the one from before the lock, with the forms that the handlers parsed.
//
// A middleware that bounds the request's time goes before the lock, so that its
// deadline bounds the waiting as well. One that runs the handlers on another goroutine, as
// gin-contrib/timeout does, goes behind the lock: see examples/extra/beside. Panics pass
// through: gin.Recovery works before and behind the lock.
//
// # Locks inside of the handler
//
// A lock that the handler takes by itself, by Engine.Do or a function of package decorator, is
// answered by the handler. [Answer] gives the answers that this package gives:
//
//	if middleware.Answer(c, err) {
//		return
//	}
//
// Take it before doing anything that has an effect, since a 409 invites the client to repeat
// the request. Let all callers take keys in one order; a key that the request holds already is
// taken again only by a policy that is Reentrant.
//
// # Behind another service
//
// A service that is called by those who hold the lock need not take it: it checks
// their fencing tokens. httplock.SendTokens sends the tokens that a request's context
// carries, [Fence] refuses a request without the token of its key's lock or with a
// stale one, and [ReadTokens] only puts them into the context.
//
//	r.POST("/products/:sku/deduct", middleware.Fence(guard, "stock:{path.sku}"), deduct)
//
// That comes before the handler reads; what it writes to needs a guard in the step
// that writes as well, as package core/fence has them for SQL, Redis and memory. A token is not a proof:
// anyone outside could send a number so large that no true holder is admitted again.
// Remove the header Fencing-Token at the edge of your network.
//
// # What a client sees
//
// Answers are application/problem+json (RFC 9457) with a member "code", and
// "placeholder" when the key could not be made of the request; REQUEST_INVALID has "field",
// the first field that is missing or not valid, as the client calls it by the tags of the
// struct, such as order.items[2].count in JSON, if that is known. They hold no values, no text of the store and nothing about the holder.
//
//	core.ErrBusy                      409 LOCK_BUSY, with Retry-After of 1 to 3 s
//	core.ErrTimeout                   409 LOCK_TIMEOUT, likewise
//	core.ErrFull                      503 LOCK_FULL, likewise
//	the request's deadline            504 DEADLINE_EXCEEDED
//	the request was cancelled         499 without a body
//	core.ErrUnavailable               503 LOCK_UNAVAILABLE
//	core.ErrClosed                    503 LOCK_CLOSED
//	core.ErrKey                       400 LOCK_KEY_INVALID
//	core.ErrKey, body over the limit  413 BODY_TOO_LARGE
//	ErrBind                           400 REQUEST_INVALID
//	ErrBody                           400 BODY_UNREADABLE
//	ErrBody, by the server's timeout  408 BODY_TIMEOUT
//	ErrBody, by a MaxBytesReader      413 BODY_TOO_LARGE
//	core.ErrPolicy                    500 LOCK_POLICY, logged
//	core.ErrDeadlock                  500 LOCK_DEADLOCK, logged
//	core.ErrNotHeld                   500 LOCK_NOT_HELD, logged
//	any other                         500 LOCK_FAILED, logged
//
// The status 499 is for access logs; there is nobody to read it, but without a
// status gin would send 200 for a call that never ran.
//
// These are for calls that never ran. If the lease ends while the handlers run,
// what they have written stays and the loss is logged; if they have written
// nothing and set no error status, the answer is 500 with LOCK_LOST,
// LOCK_MAX_HOLD or LOCK_CLOSED. [WithErrorHandler] replaces all of this.
//
// # What may be sent again
//
// 409, 429, 503 and 504, which clients and proxies repeat by themselves, are of requests that the
// handler has not worked on; 503 and 504 of a queue are of requests that may be queued, which an
// ItemID made of the request keeps from being queued twice. A request that may have had an
// effect gets 500 and never a Retry-After, not even one that the handler had set. Do not have a proxy
// repeat POST at 500 (nginx: http_500 with non_idempotent). The README of package core has a table of all answers.
//
// # Idempotency
//
// [Idempotent] runs a request once for each key, however often its client sends it: a repeated
// one gets the answer of the first, with the header Idempotent-Replayed: true.
//
//	r.POST("/payments", authenticate, middleware.Idempotent(locks,
//		core.Policy{Key: "pay:{account}:{header.Idempotency-Key}", Wait: 5 * time.Second},
//		records, idempotent.Policy{Died: idempotent.Refuse},
//		middleware.WithValue("account", accountOf)), pay)
//
// Package idempotent says how, and what becomes of a request whose run died. The header is a string, with its quotes or
// without. A request without it is refused with status 400, and so is one that gives it twice, malformed or longer than 255 bytes.
//
// The key has to name the caller as well. Otherwise callers that choose the same one get each other's answers: a template of
// {header.Idempotency-Key} alone is refused unless AnyCaller is set; of other values that clients choose, nobody can tell. The authentication
// goes before it. A template without that header is a key by nature, such as "refund:{path.order}": there is one run for
// each until its record ends.
//
// Two requests are equal if their methods, routes, paths, queries and bodies are, byte by byte as they
// came; other headers do not count. So every body is read, and one over [WithBodyLimit] is refused with 413. Another request under a key
// that was used is a 422.
//
//	the first is under way            409 LOCK_BUSY, LOCK_TIMEOUT, 503 LOCK_FULL, with Retry-After
//	idempotent.ErrMismatch            422 IDEMPOTENCY_MISMATCH
//	idempotent.ErrUnknown             422 IDEMPOTENCY_UNKNOWN
//	idempotent.ErrNoReplay            422 IDEMPOTENCY_NO_REPLAY
//	idempotent.ErrUnavailable         503 IDEMPOTENCY_UNAVAILABLE, with Retry-After
//
// The answer is held back in memory, whole, until the handlers have returned and its record is stored, or could
// not be for 5 s: then Died of the policy counts for repeated requests. So nobody is told of an effect before it was
// kept, and streams, events and large downloads are not for such a route: Flush sends
// nothing, hijacking fails, and no status from 100 to 199 is sent. An answer larger than MaxBytes of the policy is sent, and a repeated
// request gets a 422.
//
// What is kept is the status, the body, and the headers Cache-Control, Content-Disposition, -Encoding, -Language, -Location, -Range and -Type,
// ETag, Expires, Last-Modified, Location and Vary: what the body is, where what was made is, and who may keep the answer.
// [WithReplayedHeaders] adds others, but never Set-Cookie: it is of one client at one time. What sets headers of every answer goes before it, and so
// does compression.
//
// Kept are answers below 500 but 409, 425 and 429, see [WithKept]. After any other the next request runs
// again: a handler that answers 500 says that nothing has happened which a second run would repeat. If the lease of a [Lock]
// behind it has ended, Died of the policy counts. By Tx, an answer from 400 on rolls the transaction back. gin.Recovery goes before it: behind it, a panic would be a 500 like any other. A
// middleware that answers while the handlers go on, as gin-contrib/timeout does, does not go behind it: a second run would begin beside the
// first.
//
// The handler runs to its end if its client goes, with a context that ends with the lease: the client finds the answer when it
// asks again. Panics pass through, and nothing is sent of what was written before. If the lock is lost before the answer is stored, the answer
// is dropped, and the client gets 500 LOCK_LOST as above.
//
// What remains: a process may die between the effect and its record, and Died of the policy counts; a store may lose records; and a
// record ends. Then a repeated request may have its effect twice.
//
// # Queues
//
// [Enqueue] queues a request in place of working on it, see serial.Must, and answers 202
// with its place. [Answer] makes of the errors of a queue:
//
//	queue.ErrFull                        429 QUEUE_FULL, with Retry-After
//	queue.ErrItem                        413 QUEUE_ITEM
//	queue.ErrUnknown                     404 QUEUE_ITEM_UNKNOWN
//	queue.ErrNotParked                   409 QUEUE_NOT_PARKED
//	queue.ErrUnavailable, ErrDamaged     503 QUEUE_UNAVAILABLE
//
// # Files
//
// lock.go puts a lock around a route, and reads the request for its key; table.go does so for a whole
// router. locked.go binds a request to a struct, by way of fields.go, which knows what fills each
// field. idempotent.go runs a request once. fence.go checks tokens. answer.go has what a client sees when the handlers did not run, and
// options.go what can be set. decoder.go and decoder_other.go say by which library gin reads JSON.
package middleware
