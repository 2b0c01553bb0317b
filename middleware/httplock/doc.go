// Package httplock puts a distributed lock around a net/http handler.
//
//	lock := httplock.Lock(locks, core.Policy{Key: "stock:{path.sku}", Wait: 2 * time.Second})
//	mux.Handle("POST /products/{sku}/deduct", lock(deduct))
//
// The lock is taken before the handler runs and released after it has returned
// or panicked. A request whose lock cannot be had is answered: nothing ever runs
// unlocked, unless [WithFilter] or the policy's AllowEmpty says so.
//
// # Where the key comes from
//
//	{path.sku}         r.PathValue: a wildcard of the route's pattern
//	{query.sku}        a parameter of the URL's query
//	{header.X-Tenant}  a request header
//	{body.order.id}    a value in the request's body
//	{body.items[].sku} a value of each element of a list in it, in Policy.Keys
//	{client.ip}        the address in r.RemoteAddr, in one spelling
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
// its rows.
//
// A value that is missing, empty or given twice is refused with status 400, and so is a
// query that net/http can parse only in part, for a ";" or a bad "%": what
// http.AllowQuerySemicolons makes of it behind the lock is something else. chi leaves path
// values encoded, http.ServeMux decodes them: do not decode one a second time. The handler has to read the value from the same
// place: one that locks {query.sku} and then calls r.FormValue, which prefers a form in
// the body to the query, acts on a sku that it has not locked.
//
// {body.…} is read as strictly as package middleware does it for gin: from
// application/json, except with GET, and from application/x-www-form-urlencoded
// with POST, PUT and PATCH; what decoders could read in different ways is
// refused. Only JSON has lists.
//
// net/http knows no trusted proxies, so that {client.ip} is the proxy's address
// behind one, and one lock for all of its clients. There, use [WithValue] with a
// function that knows which header to believe, or a middleware before the lock
// that sets r.RemoteAddr.
//
// # Behind the router
//
// {path.…} exists only once a router has matched the request, so the lock goes
// around the handler of a route. A lock in front of the router, or around a route
// whose pattern has no wildcard of that name, answers 500 with LOCK_POLICY and
// logs why, once for each route. http.ServeMux and chi from 5.2 on tell the
// pattern by r.Pattern. With a router that sets neither this nor r.PathValue, use
// {query.…}, {header.…}, {body.…} or WithValue.
//
// A [Table] holds the rules of many routes. Its handler finds a request's rule by
// r.Pattern:
//
//	table, err := httplock.NewTable(locks, httplock.Rules{
//		"POST /products/{sku}/deduct": {Key: "stock:{path.sku}"},
//		"/refunds/{id}":               {Key: "refund:{path.id:int}"}, // every method
//	})
//	guard := table.Handler()
//	mux.Handle("POST /products/{sku}/deduct", guard(deduct))
//
//	err = table.Validate("POST /products/{sku}/deduct", "/refunds/{id}", "/")
//
// A request does not get round its rule: HEAD that a GET route serves takes GET's
// lock; a route's own method counts before one that a middleware has put into
// r.Method; a rule without a host is for the routes of every host; the spelling of a
// host does not matter; and a rule matches its route whatever the wildcards are called.
// A request that comes to the
// table before a router has matched it is refused with LOCK_POLICY, and so is one
// that comes by a route without a rule, such as "/", although a route with a rule
// is closer to it: then the table is in front of another router.
//
// A catch-all without a rule also gets requests whose path or host is spelt in another way
// than its router knows: //orders/1 and /%6frders/1 with chi, /orders%2f1 and CONNECT
// //orders/1 with http.ServeMux, which redirects or decodes the others. If cleaned and
// decoded it is that of a route with a rule, it is refused with status 400: another router
// may take it for that. A slash at the end is not removed for this. HEAD of a route with a
// rule for GET is refused likewise, where the router serves it by a catch-all.
//
// What remains: a handler that the table's is not around is not locked.
// [Table.Validate] finds rules that are for no route, but not handlers that were
// forgotten. With nested routers, put the table behind the innermost, and write its
// patterns as r.Pattern has them there. For a route without a method
// of its own r.Method decides when the table sees it: middleware that changes the
// method goes before.
//
// # The body
//
// A body of known length up to 1 MiB ([WithBodyLimit]) is read before the lock
// is waited for, whether or not the key needs it, and put back: net/http notices
// that an HTTP/1 client has gone only once the body was read, and a slow upload
// must not hold a lock. Larger bodies, and those of unknown length, stay unread,
// so a request with one waits for its turn even when its client has gone, and holds the
// lock for as long as its client takes to send what the handler reads: bound that by
// http.Server.ReadTimeout, or by MaxHold. A key with {body.…} needs the whole body, and one over the limit is refused with 413.
//
// # The context and the ResponseWriter
//
// The handler's r.Context() is cancelled with cause core.ErrLost, core.ErrMaxHold
// or core.ErrClosed if the lease ends before it returns, and core.LeaseFrom finds
// the lease in it. Forms that the handler parses are found in the request from
// before the lock as well, so that net/http removes the files of an upload.
//
// The ResponseWriter is an http.Flusher, http.Hijacker or http.Pusher if the one
// from before the lock is, files are sent as fast, and http.ResponseController
// works.
//
// The lock covers the run of the handler. A goroutine that it leaves behind runs
// without the lock: it needs core.Detach and a lock of its own. Nor does the
// lock cover a hijacked connection after the handler has returned.
//
// http.TimeoutHandler goes around the lock, so that its time bounds the waiting
// as well: it answers while its handler goes on, which then still has the lock.
// Inside the lock, the lock would be released under a handler that goes on.
//
// # Locks inside of the handler
//
// A lock that the handler takes by itself, by Engine.Do or a function of package decorator, is
// answered by the handler. [Answer] gives the answers that this package gives:
//
//	if httplock.Answer(w, r, err) {
//		return
//	}
//
// Take it before doing anything that has an effect, since a 409 invites the client to repeat
// the request. Let all callers take keys in one order; a key that the request holds already is
// taken again only by a policy that is Reentrant. [ProblemOf] returns the answers, for
// frameworks that do not go by net/http.
//
// # Behind another service
//
// A service that is called by those who hold the lock need not take it: it checks
// their fencing tokens. [SendTokens] sends the tokens that a request's context
// carries, [Fence] refuses a request without the token of its key's lock or with a
// stale one, and [ReadTokens] only puts them into the context.
//
//	mux.Handle("POST /products/{sku}/deduct", httplock.Fence(guard, "stock:{path.sku}")(deduct))
//
// That comes before the handler reads; what it writes to needs a guard in the step
// that writes as well, as package core/fence has them for SQL, Redis and memory. A token is not a proof:
// anyone outside could send a number so large that no true holder is admitted again.
// Remove the header Fencing-Token at the edge of your network.
//
// # What a client sees
//
// Answers and codes are those of package middleware: application/problem+json
// (RFC 9457) with a member "code", and "placeholder" when the key could not be
// made of the request; 409 and LOCK_FULL have a Retry-After. They hold no values, no text of the
// store and nothing about the holder.
//
//	core.ErrBusy, core.ErrTimeout     409 LOCK_BUSY, LOCK_TIMEOUT
//	core.ErrFull                      503 LOCK_FULL
//	the request's deadline            504 DEADLINE_EXCEEDED
//	the request was cancelled         499 without a body
//	core.ErrUnavailable, ErrClosed    503 LOCK_UNAVAILABLE, LOCK_CLOSED
//	core.ErrKey                       400 LOCK_KEY_INVALID, 413 BODY_TOO_LARGE
//	ErrBody                           400 BODY_UNREADABLE, 408 BODY_TIMEOUT, 413 BODY_TOO_LARGE
//	core.ErrPolicy                    500 LOCK_POLICY, logged
//	core.ErrDeadlock, ErrNotHeld      500 LOCK_DEADLOCK, LOCK_NOT_HELD, logged
//	any other                         500 LOCK_FAILED, logged
//
// These are for calls that never ran. If the lease ends while the handler runs,
// what it has written stays and the loss is logged, and so it is when it has
// hijacked the connection; if it has written nothing, the answer is 500 with
// LOCK_LOST, LOCK_MAX_HOLD or LOCK_CLOSED. A status from 100 to 199 other than
// 101 is no answer. [WithErrorHandler] replaces all of this.
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
//	once := httplock.Idempotent(locks,
//		core.Policy{Key: "pay:{account}:{header.Idempotency-Key}", Wait: 5 * time.Second},
//		records, idempotent.Policy{Died: idempotent.Refuse},
//		httplock.WithValue("account", accountOf))
//	mux.Handle("POST /payments", authenticate(once(pay)))
//
// Package idempotent says how, and what becomes of a request whose run died. The header is a string, with its quotes or
// without. A request without it is refused with status 400, and so is one that gives it twice, malformed or longer than 255 bytes.
//
// The key has to name the caller as well. Otherwise callers that choose the same one get each other's answers: a template of
// {header.Idempotency-Key} alone is refused unless AnyCaller is set; of other values that clients choose, nobody can tell. The authentication
// goes around it. A template without that header is a key by nature, such as "refund:{path.order}": there is one run for
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
// The answer is held back in memory, whole, until the handler has returned and its record is stored, or could
// not be for 5 s: then Died of the policy counts for repeated requests. So nobody is told of an effect before it was
// kept, and streams, events and large downloads are not for such a route: Flush sends
// nothing, hijacking fails, and no status from 100 to 199 is sent. An answer larger than MaxBytes of the policy is sent, and a repeated
// request gets a 422.
//
// What is kept is the status, the body, and the headers Cache-Control, Content-Disposition, -Encoding, -Language, -Location, -Range and -Type,
// ETag, Expires, Last-Modified, Location and Vary: what the body is, where what was made is, and who may keep the answer.
// [WithReplayedHeaders] adds others, but never Set-Cookie: it is of one client at one time. What sets headers of every answer goes around it, and so
// does compression.
//
// Kept are answers below 500 but 409, 425 and 429, see [WithKept]. After any other the next request runs
// again: a handler that answers 500 says that nothing has happened which a second run would repeat. If the lease of a [Lock]
// inside has ended, Died of the policy counts. By Tx, an answer from 400 on rolls the transaction back. A handler that recovers from panics goes around it: inside, a panic would be a 500 like any other. A
// handler that answers while another one goes on, as http.TimeoutHandler does, does not go inside: a second run would begin beside the first.
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
// lock.go puts a lock around a handler, and reads the request for its key; table.go does so for many
// routes, by way of pattern.go, which reads patterns as routers do. idempotent.go runs a request once. fence.go checks tokens and sends
// them. answer.go has what a client sees when the handler did not run, and the ResponseWriter that
// knows whether it has answered. options.go has what can be set.
package httplock
