// Package lockpage is a live page of the locks of a service, for those who operate it: which
// keys are waited for longest, who holds them, who waits, and what was lost, refused or late.
//
//	mux.Handle("/debug/locks/", lockpage.Handler(locks))
//
// Under gin:
//
//	r.Any("/debug/locks/*page", gin.WrapH(lockpage.Handler(locks)))
//
// The pattern ends with a slash. All else is below it: nothing comes from another host.
//
// # Who may see it
//
// The handler asks nobody who he is. Put it behind the authentication that your other pages for
// operators have, or serve it on an address that only they reach; [WithViewers] is for a check of
// your own. Whoever may see the page sees identities of processes, names of policies and trace IDs.
// Keys are masked: a key is its policy's name and a short code. [ShowKeys] shows them.
//
// [WithRelease] adds a button that takes a key from its holders; read there who may use it and
// what is checked. The engine has to be made with core.WithForceRelease(). The engine's log says
// once what was taken, and by whom. Behind basic authentication the operator is its user:
//
//	locks, err := core.New(redislock.New(rdb), core.WithNamespace("shop:prod"), core.WithForceRelease())
//	…
//	page := lockpage.Handler(locks, lockpage.WithRelease(func(r *http.Request) (who string, ok bool) {
//		who, _, ok = r.BasicAuth()
//		return who, ok && mayRelease[who]
//	}))
//	mux.Handle("/debug/locks/", operators(page)) // operators checks the password of every request
//
// What other processes do is what they tell through the store: whoever may write there can make up
// processes and holders, though not hide what this process itself holds.
//
// # What it shows
//
// The first page has all processes of the namespace that [watch.New] reaches: on Redis
// and Valkey all that have taken a lock. With a driver that cannot pass messages between
// processes it has this one alone, and says so. Each process is alive, silent or gone, and has the version
// of its program and since when it runs. The store is named, with its address. A policy has its mode, Wait,
// TTL and MaxHold as they are in force, and which of them an override sets; if processes differ, a line for
// each group that agrees. A key has its holder, since when it holds, what
// is left of its TTL, renewals and the trace; its waiters; and counts and the longest waits of
// the last minutes. Bars have one scale for all rows, of powers of ten from a millisecond to a
// minute. Counts begin when somebody begins to look; a policy is
// there from its first call after that. The page of a key has its queue in order,
// what the store says, and the last 50 events on a time line.
//
// A store that fails is said in front, with since when and what it came to last; the page asks it every
// two seconds. What is not known then is unknown, and a time that a silent process told of stands still.
// A wait is marked once it is half of its policy's Wait, or 30 s if that has no end. Callers of a policy
// with Standby, such as the candidates for a leader, are counted apart: they wait for no call.
//
// [WithPanels] adds tables of what else uses locks:
//
//	lockpage.Handler(locks, lockpage.WithPanels(refunds, prices, report, indexer))
//
// # What it costs
//
// Nothing while nobody looks: the engine is watched from the first request until some seconds
// after the last, and a page in a browser's background asks for nothing. At most [WithStreams]
// browsers are kept up to date, four times a second at most, and each is sent the rows that have
// changed. While somebody looks the store is asked whether it answers every two seconds, and about a key that
// somebody looks at once a second, for all who do. A browser that does not read for 30 s is given up.
//
// # What a live page needs of the server
//
// The streams set their own deadlines, so that the server's timeouts do not end them. They are
// answered with 501, and the page is to be reloaded by hand, if something around the handler takes
// that away:
//
//   - Middleware that wraps the http.ResponseWriter needs a method Unwrap, see
//     http.ResponseController, or this handler outside of it.
//   - http.TimeoutHandler keeps all back until the end. Leave it around your other handlers.
//
// The streams end when their http.Server shuts down, so that Shutdown does not wait for them. One
// case is left: the server has a BaseContext, and the first request ever for this handler begins a
// stream when Shutdown has been called already. It ends with that context, or after 10 minutes; cancel the
// context when you shut down.
//
// Without JavaScript it is a page that can be reloaded.
//
// # Several replicas
//
// A page behind a load balancer may be answered by any replica. [WithSecret] gives all of them
// the same secret, so that links to keys and the button work whichever answers.
//
// # Files
//
// page.go serves the page, and has its options; stream.go keeps browsers up to date. hub.go watches
// the locks while somebody looks, and asks panels. sections.go says what a page consists of, rows.go
// what is in its tables; draw.go has bars, time lines, and how texts and figures are spelt. release.go
// takes a key from its holders, and has the secret by which links and buttons are known again.
package lockpage
