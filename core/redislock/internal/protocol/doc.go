// Package protocol is the protocol between a Redis lock and its server: the scripts, their
// arguments and replies, and the messages that a script pushes to holders and waiters.
//
// One hash per lock is the only key of every script, so that it can be neither
// half migrated nor half evicted. Its fields:
//
//	o      owner; "-" while the key is kept for MinHold, "+" while several hold
//	       it; empty when free; and "*" after any of these while anybody waits
//	p      the holder's push channel; empty when free
//	t      the latest token: server time in microseconds, made to rise
//	x      when the lease ends, server time in ms
//	l      the longest length given to the lease, in ms
//	z      the last four ended owners, newest first
//	s      those who hold the key together
//	u      up to which token leases were taken from their holders
//	h n c  the queue: index of its head, next index, number of entries
//	w<i>   entry i: owner, its length E, its limit, its push channel
//	i<o>   the index of owner o's entry
//
// The hash stays for [Linger] after the lease. The server is told to keep it for some minutes
// longer, until a time that follows from t, so that most runs need no PEXPIRE. Every change
// of t or x keeps to that.
//
// A script reads the server's time once. The commonest cases have a fast path: one read of a
// few fields, one write, and a reply that is no list. All other cases take the general path:
// one more read brings all but the queue's entries. No script shortens a live lease, except
// that an end with Keep gives one up; a script that finds its own owner live extends it.
package protocol
