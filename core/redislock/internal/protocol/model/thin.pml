/*
 * One key: absent, thin (a string: one holder, and nobody waits), or fat (a hash). N owners ask for it
 * once each, in any order of messages. Requests come late and twice, replies are lost, owners give up
 * and crash, leases expire. At most one owner holds, as far as it knows; no key is free while somebody
 * is queued; and when all have ended and no message is left, nothing is held.
 *
 * An owner whose request may be under way still, or a copy of it, is ended by BURY; all others by END.
 * Only what may happen to a thin key, or make a fat one of it, is in this model: what a hash does with
 * its queue is in handover.pml and sharing.pml, and who gets which token in clocks.pml.
 */
#ifndef N
#define N 2
#endif
#ifndef TRIES
#define TRIES 1
#endif
#define NONE N

mtype = {ABSENT, THIN, FAT};
mtype = {IDLE, ASKING, WAITING, HOLDING, ENDING, DONE, DEAD};

mtype kind = ABSENT;
byte holder = NONE;
bool queued[N], buried[N];

/* Requests on their way, and replies: granted, refused by SET, a place, ended. */
byte set[N], acq[N], end[N], bury[N];
bool ok[N], no[N], place[N], ended[N];

mtype is[N] = IDLE;
bool copies[N];  /* a request that creates may be under way */
byte tries[N];

byte i;
hidden byte j, holding;

/* The key is free: the first who is queued gets it, or it goes. */
inline pass() {
	holder = NONE;
	j = 0;
	do
	:: j < N && !queued[j] -> j++
	:: else -> break
	od;
	if
	:: j < N -> queued[j] = false; holder = j; ok[j] = true
	:: else -> tidy()
	fi
}

/* What nobody holds, waits for or has to be kept from goes. */
inline tidy() {
	j = 0;
	do
	:: j < N && !queued[j] && !buried[j] -> j++
	:: else -> break
	od;
	if
	:: j == N && holder == NONE -> kind = ABSENT
	:: else
	fi
}

/* No key is free while somebody is queued. */
inline sound() {
	j = 0;
	do
	:: j < N -> assert(!queued[j] || holder != NONE); j++
	:: else -> break
	od
}

inline ends(o) {
	if
	:: holder == o -> pass()
#ifdef M_BLIND
	:: holder != o && kind == THIN -> holder = NONE; kind = ABSENT
	:: holder != o && kind != THIN -> queued[o] = false; tidy()
#else
	:: else -> queued[o] = false; tidy()
#endif
	fi;
	ended[o] = true
}

inline give_up(o) {
	is[o] = ENDING;
	if
	:: copies[o] -> bury[o]++
	:: else -> end[o]++
	fi
}

init {
	i = 0;
	do
	:: atomic { i < N -> i++ }

	/* The server executes a request. */
	:: atomic { i < N && set[i] > 0 -> set[i]--;
		if
		:: kind == ABSENT -> kind = THIN; holder = i; ok[i] = true
		:: else -> no[i] = true
		fi }
	:: atomic { i < N && acq[i] > 0 -> acq[i]--;
		if
		:: holder == i -> ok[i] = true
		:: holder != i && queued[i] -> place[i] = true
		:: holder != i && !queued[i] && buried[i] -> skip
		:: holder != i && !queued[i] && !buried[i] && kind == ABSENT -> kind = THIN; holder = i; ok[i] = true
		:: holder != i && !queued[i] && !buried[i] && kind == THIN ->
			kind = FAT; queued[i] = true; place[i] = true;
#ifdef M_FORGET
			holder = NONE
#endif
		:: holder != i && !queued[i] && !buried[i] && kind == FAT ->
			if
			:: holder == NONE -> holder = i; ok[i] = true
			:: else -> queued[i] = true; place[i] = true
			fi
		fi;
		sound() }
	:: atomic { i < N && end[i] > 0 -> end[i]--; ends(i); sound() }
	:: atomic { i < N && bury[i] > 0 -> bury[i]--;
#ifndef M_NOBURY
		buried[i] = true;
		kind = FAT;
#endif
		ends(i); sound() }

	/* A lease of who has given up, or does not know of it, expires; the answer no longer counts. */
	:: atomic { holder < N && is[holder] != HOLDING ->
#ifndef M_LATE
		ok[holder] = false;
#endif
		pass() }
	/* A place of who is not there any more, too. */
	:: atomic { i < N && queued[i] && is[i] == DEAD -> queued[i] = false; tidy() }
	/* No request of it can come any more. */
	:: atomic { i < N && buried[i] && set[i] + acq[i] == 0 && (is[i] == DONE || is[i] == DEAD) -> buried[i] = false; tidy() }

	/* An owner goes on. */
	:: atomic { i < N && is[i] == IDLE -> is[i] = ASKING; set[i]++ }
	:: atomic { i < N && is[i] == ASKING && no[i] -> no[i] = false; acq[i]++ }
	:: atomic { i < N && is[i] == ASKING && place[i] -> place[i] = false; is[i] = WAITING }
	:: atomic { i < N && (is[i] == ASKING || is[i] == WAITING) && ok[i] -> ok[i] = false; is[i] = HOLDING;
		holding = 0;
		j = 0;
		do
		:: j < N -> holding = holding + (is[j] == HOLDING -> 1 : 0); j++
		:: else -> break
		od;
		assert(holding == 1) }
	/* It asks again without an answer, or its client does, or it gives up. */
	:: atomic { i < N && is[i] == ASKING && tries[i] < TRIES -> tries[i]++; acq[i]++;
#ifndef M_COPIES
		copies[i] = true
#endif
		}
	:: atomic { i < N && is[i] == ASKING && set[i] + acq[i] > 0 -> copies[i] = true; give_up(i) }
	:: atomic { i < N && is[i] == ASKING && set[i] + acq[i] == 0 -> copies[i] = true; give_up(i) }
	:: atomic { i < N && (is[i] == WAITING || is[i] == HOLDING) -> give_up(i) }
	:: atomic { i < N && is[i] == ENDING && ended[i] -> is[i] = DONE }
	:: atomic { i < N && is[i] != DONE && is[i] != DEAD && is[i] != IDLE -> is[i] = DEAD }

	:: atomic { i == N -> i = 0 }
	:: atomic { i == N ->
		j = 0;
		do
		:: j < N && (is[j] == DONE || is[j] == DEAD) && set[j] + acq[j] + end[j] + bury[j] == 0 -> j++
		:: else -> break
		od;
		if
		:: j == N ->
			assert(holder == NONE || is[holder] == DEAD);
			break
		:: else -> i = 0
		fi }
	od
}
