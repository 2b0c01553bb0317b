/* The queue of one key, with two workers. The lock grants rising tokens, one holder at a time; a lease is lost at
 * any moment (LB of them), a worker dies at any moment (CB), replies are lost and requests come twice and late (FB), and
 * runs fail (RB). Time is relative: counters count at a tick. A message takes any number of ticks.
 * What is claimed and pushed is left out: it gives no right to begun anything. */
#ifndef N
#define N 2                     /* items */
#endif
#ifndef A
#define A 2                     /* attempts */
#endif
#ifndef S
#define S 2                     /* spacing */
#endif
#ifndef G
#define G 1                     /* grace */
#endif
#ifndef FB
#define FB 1
#endif
#ifndef CB
#define CB 1
#endif
#ifndef LB
#define LB 1
#endif
#ifndef RB
#define RB 1
#endif
#define MOST (S+G+1)            /* ticks beyond which nobody looks */
#define MAX(a,b) ((a)>(b) -> (a) : (b))
#define LESS(a,b) ((a)>(b) -> (a)-(b) : 0)
/* states of a worker */
#define IDLE 0
#define ASK 1                   /* is to send Begin */
#define GOT 2                   /* the answer is on its way, with an item */
#define RUN 3
#define END 4                   /* is to send End */
#define LEAVE 5
#define GONE 6                  /* dead; its lease runs */
/* outcomes and answers */
#define DONE 1
#define RETRY 2
#define NONE 0
#define ITEM 1
#define SUPERSEDED 2

/* the store */
byte token, head=1, att, next, age, lseq, latt;
bool begun, over;
/* the lock */
byte lock, granted;
/* the workers */
byte st[2], tok[2], item[2], nth[2], out[2], waited[2], late[2];
bool lost[2];
/* late copies */
byte lbt[2], let[2], lei[2], lea[2], leo[2];
/* what has happened */
byte since=MOST, starts[N+2], effects[N+2], faults, taken, fb=FB, cb=CB, lb=LB, rb=RB;
hidden byte res;

/* every attempt that was counted was run, or is that of a worker with a fault */
#ifdef M_COUNTLATE
#define COUNTED skip
#else
#define COUNTED assert(att<=starts[head]+taken)
#endif
/* alone: nobody runs with a lease but w */
#define ALONE(w) (!(st[1-(w)]==RUN && lock==2-(w)))

inline begin(_w) {
  res=NONE;
  do
  :: head>N -> break
  :: head<=N && !begun && att>=A -> COUNTED; head++; att=0          /* dead; those behind it go on */
  :: head<=N && !begun && att<A && next>0 -> break
  :: head<=N && (begun || next==0 && att<A) ->
     if :: !begun ->
#ifndef M_COUNTLATE
           assert(att<=starts[head]+taken); att++;        /* every attempt was begun to be begun */
#endif
           assert(ALONE(_w))
        :: else ->
#ifdef M_RECOUNT
           att++
#else
           skip
#endif
     fi;
     begun=1; over=0; age=0;
#ifndef M_NOSPACE
#ifdef M_NOGRACE
     next=S;
#else
     next=S+G;
#endif
#endif
     res=ITEM; break
  od }

inline srvBegin(_w,_t) {
  if
#ifndef M_BEGINTOKEN
  :: _t<token -> res=SUPERSEDED
#endif
#ifndef M_NOOVER
  :: _t==token && over -> res=SUPERSEDED
#endif
  :: else ->
     if :: _t!=token -> if :: begun -> taken++; assert(taken<=faults) :: else fi; token=_t; over=0; begun=0; lseq=0; latt=0
        :: else
     fi;
     begin(_w);
#ifndef M_NOTHING
     if :: res==NONE -> over=1 :: else fi                 /* the token is used up */
#endif
  fi }

#ifdef M_ATTEMPT
#define SAME(i,n) ((i)==head)
#else
#define SAME(i,n) ((i)==head && ((n)==att))
#endif
#ifdef M_COUNTLATE
#undef SAME
#define SAME(i,n) ((i)==head)
#endif
inline srvEnd(_w,_t,_i,_n,_o,_more) {
  res=NONE;
  if
#ifdef M_ENDTOKEN
  :: begun && _i==head ->
#else
  :: _t==token && begun && SAME(_i,_n) ->
#endif
     assert(ALONE(_w));
#ifndef M_NOLATE
     next=LESS(S+late[_w],age);
#else
     next=LESS(S,age);
#endif
#ifdef M_COUNTLATE
     att++;
#endif
     if :: _o==DONE -> assert(effects[head]>0); head++; att=0
        :: _o==RETRY && att>=A -> COUNTED; head++; att=0
        :: else
     fi;
     begun=0; over=1; lseq=_i; latt=_n;
     if :: _more -> begin(_w) :: else fi
#ifndef M_NOREPLAY
  :: else -> if :: _t==token && lseq==_i && latt==_n -> if :: begun || _more && over==0 -> begin(_w) :: else fi
                :: else -> res=SUPERSEDED fi
#else
  :: else -> res=SUPERSEDED
#endif
  fi }

/* answered: what w does with res, whose reply may be lost or its request doubled */
inline answered(_w) {
  if :: res==ITEM -> item[_w]=head; nth[_w]=att; st[_w]=GOT
     :: res==NONE || res==SUPERSEDED -> st[_w]=LEAVE
  fi }

inline forget(_w) { st[_w]=IDLE; tok[_w]=0; item[_w]=0; nth[_w]=0; out[_w]=0; waited[_w]=0; late[_w]=0; lost[_w]=0 }

proctype Worker(byte w) {
endw: do
  :: atomic { st[w]==IDLE && lock==0 && head<=N && (next==0 || begun) -> lock=w+1; granted++; tok[w]=granted; lost[w]=0; st[w]=ASK }
  :: atomic { st[w]==ASK -> waited[w]=0; srvBegin(w,tok[w]);
       if :: answered(w)
          :: fb>0 -> fb--                                                 /* its answer is lost */
          :: fb>0 && lbt[w]==0 -> fb--; lbt[w]=tok[w]; answered(w)        /* a copy comes late */
       fi }
  :: atomic { lbt[w]!=0 -> srvBegin(w,lbt[w]); lbt[w]=0; res=0 }
#ifdef M_NOTLATE
  :: atomic { st[w]==GOT && !lost[w] ->
#else
  :: atomic { st[w]==GOT && !lost[w] && waited[w]>G -> st[w]=ASK }
  :: atomic { st[w]==GOT && !lost[w] && waited[w]<=G ->
#endif
       assert(since>=S); since=0; starts[item[w]]++; assert(starts[item[w]]<=A);
       assert(item[w]==1 || starts[item[w]]>0); late[w]=waited[w]; st[w]=RUN }
  :: atomic { st[w]==GOT && lost[w] -> st[w]=LEAVE }
  :: atomic { st[w]==RUN && !lost[w] -> assert(effects[item[w]]<=faults); effects[item[w]]++; out[w]=DONE; st[w]=END }
  :: atomic { st[w]==RUN && !lost[w] && rb>0 -> rb--; out[w]=RETRY; st[w]=END }
  :: atomic { st[w]==RUN && lost[w] -> out[w]=RETRY; st[w]=END }
  :: atomic { st[w]==END -> waited[w]=0; srvEnd(w,tok[w],item[w],nth[w],out[w],!lost[w]);
       if :: answered(w)
          :: fb>0 -> fb--
          :: fb>0 && let[w]==0 -> fb--; let[w]=tok[w]; lei[w]=item[w]; lea[w]=nth[w]; leo[w]=out[w]; answered(w)
       fi }
  :: atomic { let[w]!=0 -> srvEnd(w,let[w],lei[w],lea[w],leo[w],1); let[w]=0; lei[w]=0; lea[w]=0; leo[w]=0 }
  :: atomic { st[w]==LEAVE -> if :: lock==w+1 -> lock=0 :: else fi; forget(w) }
  :: atomic { st[w]!=IDLE && st[w]!=GONE && cb>0 -> cb--; faults++; st[w]=GONE }
  :: atomic { st[w]==GONE -> if :: lock==w+1 -> lock=0 :: else fi; forget(w) }  /* its lease ends */
  :: atomic { lock==w+1 && st[w]!=GONE && lb>0 -> lb--; faults++; lock=0; lost[w]=1 }
  od }

proctype Tick() {
  endt: do
  :: atomic { next>0 || since<MOST || st[0]==GOT && waited[0]<=G || st[1]==GOT && waited[1]<=G ->
       next=LESS(next,1); age=(age<MOST -> age+1 : age); since=(since<MOST -> since+1 : since);
       if :: st[0]==GOT && waited[0]<=G+1 -> waited[0]++ :: else fi;
       if :: st[1]==GOT && waited[1]<=G+1 -> waited[1]++ :: else fi }
  od }

init { atomic { run Worker(0); run Worker(1); run Tick() } }
