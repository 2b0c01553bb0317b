/* Model (f): two carts, each of which wants some of three keys, beside somebody who wants one. A cart asks for all
 * keys that it lacks at once, as who would not wait. It keeps what it got before the first key that it did not get,
 * sends the release of the rest, waits for that key, and asks for the others again. A release is executed at any later
 * time, and the key handed to the first of its queue after that: meanwhile it is held by nobody, and not free.
 * Who waits may give up. */
#define NK 3
#define NP 3                    /* carts 0 and 1; process 2 wants one key */
#ifndef WANT0
#define WANT0 7                 /* bits of keys */
#endif
#ifndef WANT1
#define WANT1 7
#endif
#ifndef WANT2
#define WANT2 2
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#define BIT(k) (1<<(k))
#define BEYOND(b) (7 & ~(((b)<<1)-1))
#ifdef M_ORDER                  /* one cart waits first for the largest key that is taken */
#define FIRST(me,b) ((me)==1 -> LARGEST(b) : SMALLEST(b))
#else
#define FIRST(me,b) SMALLEST(b)
#endif
#define SMALLEST(b) (((b)&1) -> 0 : (((b)&2) -> 1 : 2))
#define LARGEST(b) (((b)&4) -> 2 : (((b)&2) -> 1 : 0))

byte holder[NK];                /* a process plus 1, or 0 */
byte q[9], qn[NK];              /* of key k: q[3*k] to q[3*k+qn[k]-1], processes plus 1 */
byte rel[NP];                   /* releases under way */
byte done, leaves=2;

inline take(_take_k,_take_me) { assert(holder[_take_k]==0); holder[_take_k]=_take_me+1; printf("p%d has key %d\n",_take_me,_take_k) }
inline push(_push_k,_push_me) { q[3*_push_k+qn[_push_k]]=_push_me+1; qn[_push_k]++ }
inline pull(_pull_k,_pull_i) { do :: _pull_i+1<qn[_pull_k] -> q[3*_pull_k+_pull_i]=q[3*_pull_k+_pull_i+1]; _pull_i++ :: else -> break od;
  qn[_pull_k]--; q[3*_pull_k+qn[_pull_k]]=0; _pull_i=0 }
#ifdef M_PASS                   /* a key that nobody holds is free, whoever waits for it */
#define FREE(k) (holder[k]==0)
#else
#define FREE(k) (holder[k]==0 && qn[k]==0)
#endif

proctype Cart(byte me; byte want) {
  byte got, todo, busy, k, i, rounds, waits;
  do
  :: rounds==ROUNDS -> break
  :: else ->
     todo=want & ~got; busy=0;
     if
     :: (todo & (todo-1))==0 -> busy=todo; todo=0              /* a single key is waited for at once */
     :: else
     fi;
     do                         /* one request for each key, executed in any order */
     :: atomic { (todo & BIT(0)) && !(rel[me] & BIT(0)) -> k=0; todo=todo & ~BIT(0) };
asked:  atomic {
          if :: FREE(k) -> assert(qn[k]==0); take(k,me); got=got | BIT(k)      /* nobody is passed */
             :: else -> busy=busy | BIT(k)
          fi; k=0 }
     :: atomic { (todo & BIT(1)) && !(rel[me] & BIT(1)) -> k=1; todo=todo & ~BIT(1) }; goto asked
     :: atomic { (todo & BIT(2)) && !(rel[me] & BIT(2)) -> k=2; todo=todo & ~BIT(2) }; goto asked
     :: todo==0 -> break
     od;
     if
     :: busy==0 ->
        atomic { k=0; do :: k<NK -> assert(!(want & BIT(k)) || holder[k]==me+1); k++ :: else -> break od;
          k=0; rel[me]=got; got=0; rounds++; waits=0 }
     :: else ->
        atomic { k=FIRST(me,busy);
#ifndef M_KEEP                  /* what is beyond the key that is waited for is kept */
          rel[me]=rel[me] | (got & BEYOND(BIT(k))); got=got & ~BEYOND(BIT(k));
#endif
        };
        atomic { !(rel[me] & BIT(k)) ->
          if :: holder[k]==0 && qn[k]==0 -> take(k,me) :: else -> push(k,me) fi;
          waits++; assert(waits<=NK);                          /* each wait is for a larger key */
#ifndef DEADLOCKS               /* only whether somebody waits for ever */
          assert((got & BEYOND(BIT(k)))==0);
#endif
        };
        if
        :: atomic { holder[k]==me+1 -> got=got | BIT(k); k=0; busy=0 }
        :: atomic { holder[k]!=me+1 && leaves>0 -> leaves--;
             i=0; do :: q[3*k+i]==me+1 -> break :: else -> i++ od; pull(k,i);
             rel[me]=rel[me] | got; got=0; k=0; busy=0; rounds++; waits=0 }
        fi;
        if
        :: got==want ->
           atomic { k=0; do :: k<NK -> assert(!(want & BIT(k)) || holder[k]==me+1); k++ :: else -> break od;
             k=0; rel[me]=got; got=0; rounds++; waits=0 }
        :: else
        fi
     fi
  od;
  done++ }

/* the store executes releases, and hands keys over */
proctype Store() {
  byte p, k, i;
 end: do
  :: atomic { rel[0]!=0 -> p=0 }; goto one
  :: atomic { rel[1]!=0 -> p=1 }; goto one
  :: atomic { rel[2]!=0 -> p=2 };
one: if
     :: atomic { (rel[p] & BIT(0)) -> rel[p]=rel[p] & ~BIT(0); assert(holder[0]==p+1); holder[0]=0; p=0 }
     :: atomic { (rel[p] & BIT(1)) -> rel[p]=rel[p] & ~BIT(1); assert(holder[1]==p+1); holder[1]=0; p=0 }
     :: atomic { (rel[p] & BIT(2)) -> rel[p]=rel[p] & ~BIT(2); assert(holder[2]==p+1); holder[2]=0; p=0 }
     fi
  :: atomic { holder[0]==0 && qn[0]>0 -> k=q[0]-1; take(0,k); k=0; pull(0,i) }
  :: atomic { holder[1]==0 && qn[1]>0 -> k=q[3]-1; take(1,k); k=0; pull(1,i) }
  :: atomic { holder[2]==0 && qn[2]>0 -> k=q[6]-1; take(2,k); k=0; pull(2,i) }
  od }

/* when nothing more can happen, everybody has had what it wanted */
proctype Watch() { timeout -> assert(done==NP); assert(holder[0]==0 && holder[1]==0 && holder[2]==0) }

init { atomic { run Cart(0,WANT0); run Cart(1,WANT1); run Cart(2,WANT2); run Store(); run Watch() } }
