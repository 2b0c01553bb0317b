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
//	s      those who hold the key together: owner, room, token, end and push channel of each
//	u      the greatest token up to which leases were ousted
//	h n c  the queue: index of its head, next index, number of entries
//	w<i>   entry i: owner; E, the ms that the place lasts without a refresh; its limit, when
//	       the place ends, server time in ms; its room, how many owners may hold the
//	       key together with it, itself included, 0 for any number; its push channel
//	i<o>   the index of owner o's entry
//	d      the owner who was granted the key last, of those whose requests are traced, and
//	       that trace; it counts for this owner only
//	d<k>   the same of the latest such entry whose index is k, modulo 32
//
// A channel's name begins with la1:. After random text, a colon and the identity of its
// session may follow; scripts do not look into it.
//
// The hash stays for [Linger] after the lease. The server is told to keep it for some minutes
// longer, until a time that follows from t, so that most runs need no PEXPIRE. Every change
// of t or x keeps to that.
//
// A script reads the server's time once. The commonest cases have a fast path: one read of a
// few fields, one write, and a reply that is no list. All other cases take the general path:
// one more read brings all but the queue's entries. No script shortens a live lease, except
// that an end with Keep gives one up; a script that finds its own owner live extends it.
//
// # Versions
//
// Keys and channels begin with la1, the version of the protocol. Processes of different
// releases may share a server if their releases have the same version: a rolling deployment
// has both on the same keys, in any order and also back. These parts are the protocol, and no
// release of la1 changes them:
//
//   - how [Key] spells a key, and how long a hash stays;
//   - the fields above: their names, their formats, and when they are there;
//   - the rules by which every script changes them: who is granted the key next, which token,
//     when a lease or a place ends, that no live lease is shortened;
//   - the kinds of push that exist, their text, and when they are sent.
//
// These are each release's own, and may change at any time: the text of the scripts, which a
// server knows by its SHA-1, and so keeps beside those of other releases; their arguments and
// replies; and how often a process asks.
//
// La1 may gain two things. One is a kind of push: [ParsePush] refuses kinds that it does not
// know, and sessions ignore what it refuses, so that whoever sends one must not rely on it, as
// with [PushEnds]. The other is a field that other scripts neither read nor write. They do not
// delete it either, so it must say for which token or owner it is valid, and nothing may go
// wrong without it. d and d<k> are such fields: a script that does not know them hands the key
// to a waiter whose trace nobody can tell from then on.
//
// Any other change is la2, even if the fields keep their names, because a script of la1 would
// act on the hash by rules that no longer hold. La1 and la2 are two locks that do not exclude
// each other. So the release that brings la2 also keeps la1, as an option of redislock.New,
// until the next minor release at least, and users go from one to the other as from one store
// to another, in the three steps of package twinlock: all processes on la1, then twinlock.New
// over la1 and la2, then la2 alone. Tokens are the server's time in both, so they go on rising.
// The order of work is: the models in the folder model, the package reference, the mutants of
// the simulation, then the scripts.
//
// TestReleasesShareARedis in core/lab/release runs the release before beside this tree. It
// fails if a change that should be la2 is made in la1.
//
// # The other stores
//
// The other drivers keep to the same policy. Only redlock (lr1) may gain pushes and fields like
// la1; all its nodes count as one store. etcdlock (la1/) and zklock (/lockaround-1) refuse values
// that they would not write themselves, so that they never delete what they do not understand:
// any change of a value is another version. etcdlock's places may have names that go on after
// their owners, since a release compares the names of others as they are. sqllock names its
// columns, so its tables may gain a column whose default is right for rows of older releases;
// Migrate then has to add it, and sessions have to work before that. Any other change of rows or
// of their meaning is made in tables of other names.
package protocol
