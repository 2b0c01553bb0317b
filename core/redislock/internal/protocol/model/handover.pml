/* Model (a): acquire/queue, refresh, hand-over with push, start without a round trip, renew-first,
 * withdraw/cleanup, release, expiry, crash; lost/slow/duplicated requests, replies and pushes.
 * Time is relative: counters count down at Tick. A normal message is handled before the next tick;
 * the adversary has FB slow/duplicate messages and CB crashes. A slow message may arrive at any later time, or never. */
#ifndef HID
#define HID hidden
#endif
#ifndef NP
#define NP 2
#endif
#ifndef NO
#define NO 3                    /* owners; process 0 has the surplus ones */
#endif
#ifndef E
#define E 2                     /* how long a place lasts */
#endif
#ifndef T
#define T 3                     /* TTL given by a renewal */
#endif
#ifndef FB
#define FB 1
#endif
#ifndef CB
#define CB 1
#endif
#ifndef HM
#define HM 2                    /* ticks a holder holds at most */
#endif
#ifndef BOUND
#define BOUND 12
#endif
#ifndef GHOST
#define GHOST 2                 /* ticks that an ended owner of a live process may block */
#endif
#ifndef GDEAD
#define GDEAD T
#endif
#define THR 1
#define NONE 15
#define EXTRA (NO-NP)
#define P(o) ((o)<=EXTRA -> 0 : (o)-EXTRA)
#ifdef M_RING1                   /* remembers only the last ended owner; default: a ring that holds them all */
#define ENDED(o) (z==(o)+1)
#define REMEMBER(o) z=(o)+1
#else
#ifdef M_RING0                   /* remembers none */
#define ENDED(o) 0
#define REMEMBER(o) skip
#else
#define ENDED(o) ((z>>(o))&1)
#define REMEMBER(o) z=z|(1<<(o))
#endif
#endif
#define MAX(a,b) ((a)>(b) -> (a) : (b))
/* client states */
#define IDLE 0
#define WAIT 1
#define HOLD 2
#define RF 3                    /* push seen too late to start: renew first */
#define END 4
/* call states */
#define NOCALL 0
#define ACQ 1
#define GRANTED 2
#define QUEUED 3
#define GONE 4
#define REN 5
#define RENEWED 6
#define NOTHELD 7

byte st[NO], d[NO], ack[NO], call[NO], cr[NO], rt[NO], hh[NO], fl[NO];
bool slw[NO], aged[NO], rf[NO], acked[NO], crt[NO];
bool en[NO], oe[NO], re[NO], oa[NO], ob[NO], orn[NO];    /* END urgent / slow / to be repeated; late ACQ with / without create; late REN */
byte pu[NO], sp[NO];                             /* push pending (its token), slow push (its token) */
bool alive[NP]; byte cu[NP], w[NP];
byte ow=NONE, exp, tok, z, q[NO], qn, lim[NO];  /* the server */
byte lct, fb=FB, cb=CB, gh;
HID byte i, j, x, res, found;

inline inq(_inq_o) { found=NONE; i=0; do :: i<qn -> if :: q[i]==_inq_o -> found=i :: else fi; i++ :: else -> break od }
inline qdel(_qdel_o) { inq(_qdel_o); if :: found!=NONE -> i=found; do :: i+1<qn -> q[i]=q[i+1]; i++ :: else -> break od; qn--; q[qn]=0; lim[_qdel_o]=0 :: else fi }
inline grant(_grant_o,_grant_self) { ow=_grant_o; exp=lim[_grant_o]; lim[_grant_o]=0; tok++; gh=0;
  if :: _grant_o!=_grant_self -> if :: pu[_grant_o]==0 -> pu[_grant_o]=tok :: else -> sp[_grant_o]=tok fi :: else fi }
inline promote(_promote_self) {
  if :: ow!=NONE && exp==0 -> REMEMBER(ow); ow=NONE :: else fi;
  do :: ow==NONE && qn>0 -> x=q[0]; j=lim[x]; qdel(x); lim[x]=j;
        if :: lim[x]>0 -> grant(x,_promote_self) :: else fi
     :: else -> break od }
inline srvACQ(_srvACQ_o,_srvACQ_create) {
#ifdef M_BARGE       /* free: the caller gets it, whatever waits */
  if :: ow!=NONE && exp==0 -> REMEMBER(ow); ow=NONE :: else fi;
#else
#ifdef M_NOPROMOTE   /* nobody but a release grants to the queue */
  if :: ow!=NONE && exp==0 && qn==0 -> REMEMBER(ow); ow=NONE :: else fi;
#else
  inq(_srvACQ_o); if :: found!=NONE -> lim[_srvACQ_o]=E :: else fi;   /* refresh first, then promote */
  promote(_srvACQ_o);
#endif
#endif
  if
  :: ow==_srvACQ_o && exp>0 ->
#ifdef M_NOEXTEND
     skip;
#else
#ifdef M_SHORTEN
     exp=E;
#else
     exp=MAX(exp,T);
#endif
#endif
     res=GRANTED; if :: !alive[P(_srvACQ_o)] -> gh=0 :: else fi
  :: ow==_srvACQ_o && exp==0 -> res=QUEUED
  :: ow!=_srvACQ_o ->
     inq(_srvACQ_o);
     if :: found!=NONE -> lim[_srvACQ_o]=E; res=QUEUED
#ifdef M_REFCREATE
        :: found==NONE ->
#else
        :: found==NONE && _srvACQ_create && !ENDED(_srvACQ_o) ->
#endif
#ifdef M_BARGE
           if :: ow==NONE -> i=0; do :: i<qn -> assert(!(lim[q[i]]>0 && st[q[i]]==WAIT)); i++ :: else -> break od;
                 lim[_srvACQ_o]=E; grant(_srvACQ_o,_srvACQ_o); res=GRANTED
              :: else -> q[qn]=_srvACQ_o; qn++; lim[_srvACQ_o]=E; res=QUEUED fi
#else
           q[qn]=_srvACQ_o; qn++; lim[_srvACQ_o]=E; res=QUEUED;
#ifndef M_NOPROMOTE
           promote(_srvACQ_o);
#else
           if :: ow==NONE && qn==1 -> promote(_srvACQ_o) :: else fi;
#endif
           if :: ow==_srvACQ_o -> exp=MAX(exp,T); res=GRANTED :: else fi
#endif
#ifndef M_REFCREATE
        :: found==NONE && !(_srvACQ_create && !ENDED(_srvACQ_o)) -> res=GONE
#endif
     fi
  fi }
inline srvEND(_srvEND_o) {
  if :: ow==_srvEND_o -> REMEMBER(_srvEND_o); ow=NONE; exp=0
#ifdef M_DELBLIND
     :: ow!=_srvEND_o && ow!=NONE -> REMEMBER(ow); ow=NONE; exp=0
     :: ow==NONE -> qdel(_srvEND_o)
#else
     :: else -> qdel(_srvEND_o); REMEMBER(_srvEND_o)
#endif
  fi;
  promote(NONE) }
inline srvREN(_srvREN_o) {
  if :: ow==_srvREN_o && exp>0 -> exp=MAX(exp,T); res=RENEWED; if :: !alive[P(_srvREN_o)] -> gh=0 :: else fi
#ifdef M_REVIVE
     :: ow==NONE || exp==0 -> ow=_srvREN_o; exp=T; res=RENEWED
     :: else -> res=NOTHELD
#else
     :: else -> promote(NONE); res=NOTHELD
#endif
  fi }
inline claim(_claim_o,_claim_rem,_claim_t) {
  i=0; do :: i<NO -> assert(i==_claim_o || st[i]!=HOLD); i++ :: else -> break od;   /* S1 */
  assert(_claim_t>lct); lct=_claim_t;                                                      /* S2 */
  printf("o%d CLAIMS for %d token %d\n",_claim_o,_claim_rem,_claim_t); st[_claim_o]=HOLD; d[_claim_o]=_claim_rem; hh[_claim_o]=0; w[P(_claim_o)]=0 }
inline drop(_drop_o) {                /* forget the outstanding call: its request may still be executed */
  if :: call[_drop_o]==ACQ && crt[_drop_o] -> oa[_drop_o]=1 :: call[_drop_o]==ACQ && !crt[_drop_o] -> ob[_drop_o]=1 :: call[_drop_o]==REN -> orn[_drop_o]=1 :: else fi;
  call[_drop_o]=NOCALL; cr[_drop_o]=0; slw[_drop_o]=0; aged[_drop_o]=0; rt[_drop_o]=0 }
inline burn(_burn_o) { st[_burn_o]=END; d[_burn_o]=0; ack[_burn_o]=0; hh[_burn_o]=0; fl[_burn_o]=0; drop(_burn_o) }
inline send(_send_o,_send_k,_send_rem) {
  call[_send_o]=_send_k; cr[_send_o]=_send_rem; rf[_send_o]=1; slw[_send_o]=0; aged[_send_o]=0;
#ifdef M_REFCREATE
  crt[_send_o]=1;
#else
  crt[_send_o]=!acked[_send_o];
#endif
  if :: true
     :: fb>0 -> fb--; slw[_send_o]=1
     :: fb>0 -> fb--; if :: _send_k==ACQ && crt[_send_o] -> oa[_send_o]=1 :: _send_k==ACQ && !crt[_send_o] -> ob[_send_o]=1 :: else -> orn[_send_o]=1 fi
  fi }
inline sendEND(_sendEND_o) { 
  if :: true -> en[_sendEND_o]=1 
     :: fb>0 -> fb--; oe[_sendEND_o]=1; re[_sendEND_o]=1      /* timed out: sent again at the next tick */
     :: fb>0 -> fb--; oe[_sendEND_o]=1; en[_sendEND_o]=1 fi }

proctype Owner(byte o) {
 endw: do
 /* begin an attempt */
 :: atomic { st[o]==IDLE && alive[P(o)] && cu[P(o)]==o -> printf("o%d begins\n",o); st[o]=WAIT; ack[o]=E; acked[o]=0; send(o,ACQ,T) }
 /* refresh each tick */
 :: atomic { st[o]==WAIT && call[o]==NOCALL && !rf[o] -> printf("o%d refreshes\n",o); send(o,ACQ,T);
#ifdef M_DLASTSENT
      ack[o]=E
#endif
    }
 /* the server executes the outstanding call */
 :: atomic { call[o]==ACQ -> srvACQ(o,crt[o]); call[o]=res; printf("  S: ACQ o%d -> %d (ow %d exp %d tok %d)\n",o,res,ow,exp,tok); rt[o]=tok;
      if :: true :: fb>0 -> fb--; slw[o]=1 fi }
 :: atomic { call[o]==REN -> srvREN(o); call[o]=res; printf("  S: REN o%d -> %d (ow %d exp %d)\n",o,res,ow,exp); rt[o]=tok;
      if :: true :: fb>0 -> fb--; slw[o]=1 fi }
 /* late duplicates */
 :: atomic { oa[o] -> oa[o]=0; srvACQ(o,1); printf("  S: late ACQ(create) o%d -> %d (ow %d exp %d tok %d)\n",o,res,ow,exp,tok) }
 :: atomic { ob[o] -> ob[o]=0; srvACQ(o,0); printf("  S: late ACQ(refresh) o%d -> %d (ow %d exp %d tok %d)\n",o,res,ow,exp,tok) }
 :: atomic { orn[o] -> orn[o]=0; srvREN(o); printf("  S: late REN o%d -> %d (ow %d exp %d)\n",o,res,ow,exp) }
 :: atomic { en[o] -> en[o]=0; srvEND(o); printf("  S: END o%d (ow %d exp %d)\n",o,ow,exp) }
 :: atomic { oe[o] -> oe[o]=0; srvEND(o); printf("  S: late END o%d (ow %d exp %d)\n",o,ow,exp) }
 /* replies */
 :: atomic { call[o]==GRANTED ->
#ifdef M_DREPLY
      cr[o]=T;
#endif
      if :: st[o]==WAIT && cr[o]>=THR -> claim(o,cr[o],rt[o]); call[o]=NOCALL; slw[o]=0; cr[o]=0; rt[o]=0
         :: st[o]==WAIT && cr[o]<THR -> drop(o); st[o]=RF; send(o,REN,T)
         :: st[o]==HOLD -> d[o]=MAX(d[o],cr[o]); drop(o)
         :: else -> drop(o) fi }
 :: atomic { call[o]==QUEUED -> 
      if :: st[o]==WAIT -> ack[o]=MAX(ack[o],(cr[o]>T-E -> cr[o]-(T-E) : 0)); acked[o]=1;
#ifndef M_NOFLOOR
            fl[o]=MAX(fl[o],rt[o])
#endif
         :: else fi; drop(o) }
 :: atomic { call[o]==GONE -> if :: st[o]==WAIT -> burn(o); sendEND(o) :: else -> drop(o) fi }
 :: atomic { call[o]==RENEWED ->
      if :: st[o]==RF && cr[o]>=THR -> claim(o,cr[o],rt[o]); drop(o)
         :: st[o]==HOLD -> d[o]=MAX(d[o],cr[o]); drop(o)
         :: else -> drop(o) fi }
 :: atomic { call[o]==NOTHELD -> if :: st[o]==RF || st[o]==HOLD -> burn(o); sendEND(o) :: else -> drop(o) fi }
 :: atomic { call[o]!=NOCALL && slw[o] -> printf("o%d call times out\n",o); drop(o) }     /* the call times out */
 /* pushes: delivered, or delayed */
 :: atomic { pu[o]!=0 && fb>0 && sp[o]==0 -> fb--; sp[o]=pu[o]; pu[o]=0 }
 :: atomic { pu[o]!=0 && fb>0 && sp[o]==0 -> fb--; sp[o]=pu[o] }
 :: atomic { pu[o]!=0 || sp[o]!=0 ->
      if :: pu[o]!=0 -> res=pu[o]; pu[o]=0 :: sp[o]!=0 -> res=sp[o]; sp[o]=0 fi; printf("push tok %d to o%d (state %d)\n",res,o,st[o]);
#ifdef M_PUSHD
      if :: st[o]==WAIT -> ack[o]=E :: else fi;
#endif
      if :: !alive[P(o)] -> skip
         :: alive[P(o)] && st[o]==WAIT && res<=fl[o] -> skip           /* older than an answer "queued" */
         :: alive[P(o)] && st[o]==WAIT && res>fl[o] && ack[o]>=THR -> claim(o,ack[o],res)
         :: alive[P(o)] && st[o]==WAIT && res>fl[o] && ack[o]<THR -> drop(o); st[o]=RF; send(o,REN,T)
         :: alive[P(o)] && (st[o]==HOLD || st[o]==RF) -> skip
#ifdef M_NOUNKNOWN
         :: else -> skip
#else
         :: alive[P(o)] && (st[o]==END || st[o]==IDLE) -> sendEND(o)   /* nobody waits with that owner */
#endif
      fi; res=0 }
 :: atomic { st[o]==RF && call[o]==NOCALL && !rf[o] -> send(o,REN,T) }
 :: atomic { st[o]==HOLD && call[o]==NOCALL && !rf[o] -> send(o,REN,T) }
 /* release, cancel */
 :: atomic { st[o]==HOLD -> printf("o%d releases\n",o); burn(o); sendEND(o) }
 :: atomic { st[o]==WAIT || st[o]==RF -> printf("o%d cancelled\n",o); burn(o); sendEND(o) }
 /* next attempt */
#ifdef M_SAMEOWNER
 :: atomic { o==0 && st[o]==END && cu[0]==0 && alive[0] -> cu[0]=1; w[0]=0; st[o]=WAIT; ack[o]=E; acked[o]=0; send(o,ACQ,T) }
#else
 :: atomic { st[o]==END && P(o)==0 && o<EXTRA && cu[0]==o && alive[0] -> cu[0]=o+1 }
#endif
 /* crash */
 :: atomic { cb>0 && alive[P(o)] && cu[P(o)]==o && st[o]!=IDLE -> printf("CRASH of o%d\n",o); cb--; gh=0; alive[P(o)]=0; w[P(o)]=0;
      burn(o); if :: en[o] -> en[o]=0; oe[o]=1 :: else fi; pu[o]=0; sp[o]=0 }
 od }

#define UNSETTLED(o) (en[o] || pu[o] || (call[o]!=NOCALL && (!slw[o] || aged[o])) || \
   ((st[o]==WAIT || st[o]==RF) && call[o]==NOCALL && !rf[o]) || (st[o]==HOLD && hh[o]>=HM))
proctype Tick() {
 endt: do
 :: atomic { !(UNSETTLED(0) || UNSETTLED(1)
#if NO>2
      || UNSETTLED(2)
#endif
#if NO>3
      || UNSETTLED(3)
#endif
#if NO>4
      || UNSETTLED(4)
#endif
      ) -> printf("tick\n");
      j=0;
      do :: j<NO ->
         if :: re[j] -> re[j]=0; if :: alive[P(j)] -> en[j]=1 :: else fi :: else fi;
         if :: lim[j]>0 -> lim[j]-- :: else fi;
         if :: ack[j]>0 -> ack[j]-- :: else fi;
         if :: cr[j]>0 -> cr[j]-- :: else fi;
         if :: st[j]==HOLD -> hh[j]++; d[j]--; if :: d[j]==0 -> burn(j); re[j]=1 :: else fi :: else fi;
         if :: call[j]!=NOCALL -> aged[j]=1 :: else fi;
         if :: st[j]==WAIT || st[j]==RF -> w[P(j)]++; assert(w[P(j)]<=BOUND) :: else fi;
         rf[j]=0; j++
      :: else -> break od;
      /* ghost: the server says held, nobody claims it or waits with that owner */
      if :: exp>0 && ow!=NONE && (st[ow]==END || st[ow]==IDLE) -> gh++; assert(gh<=(alive[P(ow)] -> GHOST : GDEAD)) :: else -> gh=0 fi;
      if :: exp>0 -> exp-- :: else fi; j=0; i=0; x=0; found=0; res=0 }
 od }
init { atomic { i=0; do :: i<NP -> alive[i]=1; i++ :: else -> break od;
   cu[0]=0; i=1; do :: i<NP -> cu[i]=i+EXTRA; i++ :: else -> break od; i=0;
   do :: i<NO -> run Owner(i); i++ :: else -> break od; i=0; run Tick() } }
