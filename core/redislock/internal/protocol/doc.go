// Package protocol is the protocol between a Redis lock and its server: the scripts, their
// arguments and replies, and the messages that a script pushes to holders and waiters.
//
// A key that nobody has is absent. While one owner holds it alone and nobody waits, it is a string,
// as of SET with NX and PX, which costs a server a fraction of a script. When a second one comes, a
// script makes a hash of it, with that holder in it, a queue and what else is to be known; the hash is
// deleted with its last lease and place. The idea is that of a JVM for the lock of an object (Bacon,
// Konuru, Murthy, Serrano: Thin Locks, PLDI 1998).
//
// Both are the only key that is written, so that a lock can be neither half migrated nor half evicted.
// Beside it each of [Shards] shards has a [Stream], which draws tokens.
//
// # A holder
//
// A holder is its owner, "room:token:expiry:length:n:" and its push channel of n bytes. The room is
// how many may hold the key together with it, itself included, 0 for any number. The token is 0 while
// only the holder knows it: until a renewal tells it. Expiry is server time in ms; the length is the
// longest that the lease was ever given, in ms.
//
// A string is one holder with room 1 and, if its request is traced, the trace. Its expiry is the
// key's own, and 0 in the text. A hash has the fields
//
//	s      the holders, one behind the other; the owner is "----------------" while the key is
//	       kept for MinHold
//	t      the latest token that is known; it is there in every hash
//	z      up to four owners that were given up, newest first: buried
//	y      until when they are, server time in ms
//	u      the greatest token up to which leases were ousted
//	h n c  the queue: index of its head, next index, number of entries
//	w<i>   entry i: owner; E, the ms that the place lasts without a refresh; its limit, when
//	       the place ends, server time in ms; its room; its push channel
//	i<o>   the index of owner o's entry
//	d      the owner who was granted the key last, of those whose requests are traced, and
//	       that trace; it counts for this owner only
//	d<k>   the same of the latest such entry whose index is k, modulo 32
//
// A channel's name begins with la2:. After random text, a colon and the identity of its
// session may follow; scripts do not look into it.
//
// A place is asked for with a bound, if its caller has one: how many places there may be before it. A place
// that has ended counts until a script finds it so; one that finds the queue full looks at 16 of them first, and the next at others.
// A place that is there is not refused, so that a request may be repeated.
//
// A script reads the server's time once. No script shortens a live lease, except
// that an end with Keep gives one up; a script that finds its own owner live extends it.
//
// # Tokens
//
// Every token is the ID of an entry of the shard's stream, which XADD draws: see [Drawn]. A script that
// grants draws one in the same run. The request that takes an absent key draws one right behind its
// SET, in the same write, without MULTI: others' commands may come between. That is enough, for the
// answer counts only before the lease's deadline: so the lease was live when its token was drawn, and
// whoever is granted the key later draws later.
//
// So tokens rise in all keys of a shard, also when the clock goes back, across a restart with
// persistence, and across a failover unless the new master's clock is behind. A stream that is not there
// begins at a number by the microsecond, so that they also rise if the server loses its data. Nothing has to be kept
// of a free key for that. In a Cluster a slot that moves may have the key here and the stream there.
// Then the grant has no token, and its owner draws one when it knows of the grant; nobody else is granted
// the key meanwhile by a push, which would have to name one.
//
// # What goes wrong
//
//	a holder dies                   the string or its record in the hash expires; a hash stays for
//	                                [Linger] then
//	a reply is lost                 the session asks again, or ends the owner with Bury; a release is
//	                                repeated, and finds the key absent or another's
//	a request comes late, or twice  a hash that has its owner buried stays for [Linger], so that SET
//	                                finds the key taken and the script refuses the owner. A session sends a
//	                                command once, and buries only if it does not know that no copy is left
//	SET is executed, XADD is not    the lease is given up; or, if all tokens of a ms were drawn, one more is
//	the clock goes back             a lease lasts no longer than the longest time that it was given, from
//	                                the next script on that sees it; a string that nobody asks for lasts
//	                                until the clock is there again
//	a failover loses writes         as if the keys that are lost had expired; tokens as above
//	a key, or a stream, is evicted  the same
//	a slot moves                    a waiter for a key that one holds alone cannot queue until it has moved
//	                                (TRYAGAIN), since a key that is not there cannot be made; it asks again.
//	                                A release deletes the key, and with it what would refuse a late copy
//
// # Versions
//
// Keys and channels begin with la2, the version of the protocol. Processes of different
// releases may share a server if their releases have the same version: a rolling deployment
// has both on the same keys, in any order and also back. These parts are the protocol, and no
// release of la2 changes them:
//
//   - how [Key] spells a key, and with it the shards;
//   - the string and the fields above: their names, their formats, and when they are there;
//   - the rules by which every request changes them: who is granted the key next, where its token
//     comes from, when a lease or a place ends, that no live lease is shortened;
//   - the kinds of push that exist, their text, and when they are sent.
//
// These are each release's own, and may change at any time: the text of the scripts, which a
// server knows by its SHA-1, and so keeps beside those of other releases; their arguments and
// replies; which of SET and the scripts a request begins with; and how often a process asks.
//
// La2 may gain two things. One is a kind of push: [ParsePush] refuses kinds that it does not
// know, and sessions ignore what it refuses, so that whoever sends one must not rely on it, as
// with [PushEnds]. The other is a field of the hash that other scripts neither read nor write. They do not
// delete it either before they delete the hash, so it must say for which token or owner it is valid, and
// nothing may go wrong without it. d and d<k> are such fields: a script that does not know them hands the
// key to a waiter whose trace nobody can tell from then on.
//
// Any other change is la3, even if the fields keep their names, because a script of la2 would
// act on the key by rules that no longer hold. La2 and la3 are two locks that do not exclude
// each other. So the release that brings la3 also keeps la2, as an option of redislock.New,
// until the next minor release at least, and users go from one to the other as from one store
// to another, in the three steps of package twinlock: all processes on la2, then twinlock.New
// over la2 and la3, then la3 alone. Tokens are the server's time in both, so they go on rising.
// The order of work is: the models in the folder model, the package reference, the mutants of
// the simulation, then the scripts. La1 was never released.
//
// TestReleasesShareARedis in core/lab/release runs the release before beside this tree. It
// fails if a change that should be la3 is made in la2.
//
// # The other stores
//
// The other drivers keep to the same policy. Only redlock (lr1) may gain pushes and fields like
// la2; all its nodes count as one store. etcdlock (la1/) and zklock (/lockaround-1) refuse values
// that they would not write themselves, so that they never delete what they do not understand:
// any change of a value is another version. etcdlock's places may have names that go on after
// their owners, since a release compares the names of others as they are. sqllock names its
// columns, so its tables may gain a column whose default is right for rows of older releases;
// Migrate then has to add it, and sessions have to work before that. Any other change of rows or
// of their meaning is made in tables of other names.
//
// # Files
//
// In the order in which a call passes them:
//
//	script.go  the scripts, which Lua files are put together to; the names of keys; and tokens that are drawn
//	args.go    what a script is given
//	reply.go   what a script replies, and what it pushes
package protocol
