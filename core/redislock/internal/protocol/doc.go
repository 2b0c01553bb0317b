// Package protocol is what a Redis lock says to its server: the scripts, their
// arguments and replies, and the messages that a script pushes to waiters.
//
// One hash per lock is the only key of every script, so that it can be neither
// half migrated nor half evicted. Its fields:
//
//	o      owner; "-" while the key is kept for MinHold; empty when free
//	p      the holder's push channel; without meaning when free
//	t      the latest token: server time in microseconds, made to rise
//	x      when the lease ends, server time in ms
//	l      the longest length given to the lease, in ms
//	z      the last four ended owners, newest first
//	h n c  the queue: index of its head, next index, number of entries
//	w<i>   entry i: owner, its length E, its limit, its push channel
//	i<o>   the index of owner o's entry
//
// The hash stays until the end of the lease's STEP of time (see opening.lua) and
// [Linger]; whatever changes x sees to that.
//
// A script reads the server's time once. The commonest cases have a short way: one
// read of a few fields, one write, and the token as the whole reply. In all others
// the rest of the hash is read too, once. No script
// shortens a live lease, except that an end with Keep gives one up; a script
// that finds its own owner live extends it.
package protocol
