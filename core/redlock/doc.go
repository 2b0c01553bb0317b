// Package redlock keeps locks in several independent Redis masters (6.2 and later, or
// Valkey), by majority.
//
//	var nodes []*redis.Client
//	for _, addr := range []string{"10.0.1.1:6379", "10.0.2.1:6379", "10.0.3.1:6379"} {
//		nodes = append(nodes, redis.NewClient(&redis.Options{Addr: addr}))
//	}
//	locks, err := core.New(redlock.New(nodes), core.WithNamespace("shop:prod"))
//
// It follows "Distributed Locks with Redis" (redis.io), whose algorithm is called
// Redlock, and answers what M. Kleppmann found missing in it ("How to do distributed
// locking", 2016): it has fencing tokens. S. Sanfilippo's reply ("Is Redlock safe?",
// 2016) is right that it helps against slow messages to check the lease after the votes.
// It does not help a process that is paused after the check. Fencing tokens do.
//
// # What it is for
//
// A lock that outlives the loss of a minority of servers, where there are Redis
// masters and no ZooKeeper or etcd. If you have one of those, or a SQL database that
// holds the data anyway, use it: this is weaker, for three reasons.
//
//   - Exclusion rests on time. A node gives its vote for the TTL, by its own clock, and
//     the holder counts the same time from before it asked. A node whose clock runs
//     fast by more than the margin (1% of the TTL and 2 ms), or is set forward, frees
//     its vote too soon. One such node is enough: it may vote for somebody else while a
//     lease rests on its vote and those of half of the others, until that lease's next
//     renewal. No clock is ever compared with another's. ZooKeeper and etcd time sessions
//     too, but the order of what is written never depends on it.
//   - The nodes know nothing of each other. What a node has forgotten the others cannot
//     tell it: there is no log to catch up with. Hence the rule of the delayed restart.
//   - Redis acknowledges before it writes to disk, unless appendfsync is always.
//
// So protect what matters with the tokens; see package fence.
//
// # Guarantees
//
// While a majority of the nodes answers and may vote, locks are granted and renewed. A node
// that is down or slow is not waited for; the nearest majority may then be farther away.
// A key has one holder at a time if clocks run at the same rate, and if each node keeps
// what it has acknowledged or, having lost it, has no vote until the restart delay below has
// passed. A holder takes its lease for over before a majority of nodes does. Without a
// majority nothing is granted and nothing renewed: callers get a [NoMajorityError], and
// holders on the wrong side of a partition end at their deadline.
//
// # The delayed restart
//
// A node that comes back without its data has forgotten its votes. It must not vote
// before every lease that it may have voted for is over: it has to stay out for longer
// than the largest TTL in use. Otherwise, of three nodes, a lease with the votes of A
// and B is in danger as soon as B restarts empty: B and C may vote for somebody else,
// and two hold the key until the first one's next renewal, which finds no majority, or
// its deadline. The second holder's token is larger, so that a guard refuses the first
// holder's writes, unless the nodes' clocks are behind by more than the outage took.
//
// [WithRestartDelay] makes the nodes keep the rule by themselves: each has a key,
// lr1:boot, with the time at which its data began, and has no vote until the delay has
// passed since. It is the right choice unless restarts lose nothing: persistence with
// appendfsync always. A delay does not help against a node that comes back with old
// data (appendfsync everysec, a snapshot): that has the key and lacks the last votes.
// Keep such a node down for the largest TTL.
//
// [Driver.States], the engine's Inspect and the gauge lock.node.condition show which
// nodes are up, slow, down or restarted empty.
//
// # Tokens
//
// They rise per key, strictly, in the order of the leases, as long as some node of each majority
// remembers the latest one: a token counts only when a majority has accepted it, and a
// node accepts only larger ones; the reason is told in confirm.go. They are made of the
// nodes' clocks in microseconds, as a session knows them from earlier replies. So they also rise
// when data is lost, unless the clocks of a majority are then behind by more than the outage took.
// The wrong clocks of a minority put a token ahead by a second at most. With its vote a node
// accepts no token from before its data began.
//
// # Waiting
//
// Waiters queue at all nodes with tickets, and nobody overtakes a place that a majority knows. The
// MaxWaiting of a policy bounds each process alone.
// But a node forgets places when it loses its data, and those of waiters that cannot reach it
// for 3 seconds or their TTL. So the order over processes is not promised, and
// Capabilities.Strict is false. A waiter repeats its ticket every second, so that a node
// learns it again. The callers of one
// process are served in turn by the engine in any case.
//
// A release tells the first in the queue of each node by Pub/Sub. Whoever misses all
// of these messages finds out within a second. If a holder crashes the next one is
// served after the TTL, and if the first in the queue has crashed too, 3 seconds later.
// One who does not wait and meets others who have only just asked, so that none has a
// majority, gives its votes back and tries again up to six times after a random pause.
//
// # Cost
//
// With N nodes asked at once, taking a free key is one round trip, to the nearest majority,
// and N commands: the votes and the token together. It is two, and 2N, if a majority does not
// accept the token, as when a session asks for the first time, or when others had the key an
// instant ago. A release is one round trip and N commands. For a hand-over the release tells
// the waiter, which then takes two round trips, for the votes and for the token: only who has
// no place in the queue sends the token with the votes. A waiter sends N commands a second, and a
// holder N every third of its TTL. What many ask of a node at about the same time
// travels together: a session uses 4 connections of a client at once, and 4 more for
// renewals; while a node does not answer, up to 12 each. Each session has one
// subscription at each node, beside the clients' pools.
//
// # Beside redsync
//
// On three servers redsync is faster with free keys and few callers. A critical section takes two
// round trips and six requests with both libraries. Medians of five rounds, on two cores that the
// client and the servers share:
//
//	callers                                        1     8    64
//	critical sections, redlock ÷ redsync        0.88  1.00  1.43
//	server's µs for a section, redlock           473   196   137
//	server's µs for a section, redsync           323   154   147
//	client's µs for a section, redlock           649   196   114
//	client's µs for a section, redsync           613   219   224
//
// A script here also keeps a token, a queue, who ended and a deadline by the node's clock; many
// requests share a round trip. core/lab/peers has the table. redsync has no fencing tokens and no
// queue, and does not renew by itself.
//
// # In the servers
//
// For each lock a hash, lr1:l:key, and while somebody waits a sorted set, lr1:q:key.
// The hash stays for an hour after its last lease, and up to the TTL and 5 minutes more, to
// remember the token and the latest eight owners: about 250 bytes, and 1.1 kB from the fifth lease
// on; 45 bytes more if requests are traced. lr1:boot stays for a day or two after the last vote, or
// for ever with [WithRestartDelay]. Give the servers the policy noeviction. In an ACL
// a user needs
//
//	ACL SETUSER locks on >secret resetkeys resetchannels -@all ~lr1:* &lr1:*
//	    +evalsha +eval +time +get +set +hmget +hget +hset +hdel +zadd +zrem +zrange
//	    +zcard +zscore +pexpire +pttl +publish +subscribe +ping
//
// Ping checks those that scripts run, and names what is missing. An operator's tool that lists
// keys needs +scan as well. Anyone who may read these keys may end the locks in them. Which
// releases may share the servers is said in package core.
//
// # Files
//
// In the order in which a call passes them:
//
//	driver.go       what a program makes: the driver, its options and sessions; and how a session asks its nodes
//	acquire.go      Acquire: the rounds of an acquisition, and its wait in the queue
//	acquisition.go  what an acquisition has asked each node for, and what that has answered
//	confirm.go      a majority accepts a token; and what a majority is
//	claims.go       who asks and who holds in a session, and what nodes push to it
//	lease.go        Renew and Release, and how an end is repeated at each node
//	health.go       States: which nodes are up; and their clocks
//	lane.go         what is asked of a node at about the same time travels together
//	script.go       the scripts, their arguments and answers
//	wire.go         commands go through a program's client of go-redis; and errors
//	operator.go     Inspect, Oust, Ping and List
package redlock
