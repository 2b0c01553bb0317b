/* Model (c): as model (a), hand-over, but of a key that several may hold together. Each owner o states how
 * many at most may hold beside it and itself: ROOM(o) is 1 for an exclusive owner, n for one of a semaphore, and
 * ANY for a reader. The smallest number of all who hold and of who asks counts. An exclusive owner that asks for
 * less, DOWN, becomes a reader without ending.
 * Time is relative: counters count down at Tick. A normal message is handled before the next tick;
 * the adversary has FB slow/duplicate messages and CB crashes. A slow message may arrive at any later time, or never. */
#ifndef HID
#define HID hidden
#endif
#ifndef NP
#define NP 3
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
#define ANY 7
#ifndef ROOM0
#define ROOM0 1
#endif
#ifndef ROOM1
#define ROOM1 ANY
#endif
#ifndef ROOM2
#define ROOM2 ANY
#endif
#ifndef ROOM3
#define ROOM3 ANY
#endif
#ifdef DOWN
#define MAYDOWN(o) (room[o]==1 && rm[o]==1)
#else
#define MAYDOWN(o) 0
#endif
#define THR 1
#define NONE 15
#define EXTRA (NO-NP)
#define P(o) ((o)<=EXTRA -> 0 : (o)-EXTRA)
#ifdef M_RING0                   /* remembers no ended owner; default: a ring that holds them all */
#define ENDED(o) 0
#define REMEMBER(o) skip
#else
#define ENDED(o) ((z>>(o))&1)
#define REMEMBER(o) z=z|(1<<(o))
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
bool hs[NO];                                     /* the server: who holds, unless exp says that it is over */
byte exp[NO], tk[NO], room[NO], tok, z, q[NO], qn, lim[NO];
byte rm[NO];                                     /* the room that an owner believes to have asked for */
byte lct, base[NO], lex, fb=FB, cb=CB, gh[NO];   /* tokens claimed: the latest; when o began; with others excluded */
HID byte i, j, x, res, found, many, least;

inline inq(_inq_o) { found=NONE; i=0; do :: i<qn -> if :: q[i]==_inq_o -> found=i :: else fi; i++ :: else -> break od }
inline qdel(_qdel_o) { inq(_qdel_o); if :: found!=NONE -> i=found; do :: i+1<qn -> q[i]=q[i+1]; i++ :: else -> break od; qn--; q[qn]=0; lim[_qdel_o]=0 :: else fi }
inline crowd() { many=0; least=ANY; i=0; do :: i<NO -> if :: hs[i] -> many++; if :: room[i]<least -> least=room[i] :: else fi :: else fi; i++ :: else -> break od }
#ifdef M_HOLDERSROOM            /* only what the holders allow counts */
#define FITS(o) (many<least)
#else
#ifdef M_ASKERSROOM             /* only what the asker allows counts */
#define FITS(o) (many<room[o])
#else
#define FITS(o) (many<least && many<room[o])
#endif
#endif
inline grant(_grant_o,_grant_self) { hs[_grant_o]=1; exp[_grant_o]=lim[_grant_o]; lim[_grant_o]=0; tok++; tk[_grant_o]=tok; gh[_grant_o]=0;
  if :: _grant_o!=_grant_self -> if :: pu[_grant_o]==0 -> pu[_grant_o]=tok :: else -> sp[_grant_o]=tok fi :: else fi }
inline settle() { i=0; do :: i<NO -> if :: hs[i] && exp[i]==0 -> REMEMBER(i); hs[i]=0 :: else fi; i++ :: else -> break od }
inline promote(_promote_self) {
  settle();
  do :: qn>0 -> x=q[0];
        if :: lim[x]==0 ->
#ifdef M_DEADHEAD               /* whoever waits behind a dead head waits on */
              break
#else
              qdel(x)
#endif
           :: else -> crowd(); if :: FITS(x) -> j=lim[x]; qdel(x); lim[x]=j; grant(x,_promote_self) :: else -> break fi;
#ifdef M_ONEHEAD                /* one is let in, and not those after it who may hold beside it */
              break
#endif
        fi
     :: else -> break od }
/* nobody waits who could hold: asserted after every script */
inline served() { crowd(); assert(qn==0 || (lim[q[0]]>0 && !FITS(q[0]))) }
inline srvACQ(_srvACQ_o,_srvACQ_create) {
  inq(_srvACQ_o); if :: found!=NONE -> lim[_srvACQ_o]=E :: else fi;   /* refresh first, then promote */
  promote(_srvACQ_o);
  if
  :: hs[_srvACQ_o] -> exp[_srvACQ_o]=MAX(exp[_srvACQ_o],T); res=GRANTED; if :: !alive[P(_srvACQ_o)] -> gh[_srvACQ_o]=0 :: else fi
  :: else ->
     inq(_srvACQ_o);
     if :: found!=NONE -> lim[_srvACQ_o]=E; res=QUEUED
        :: found==NONE && _srvACQ_create && !ENDED(_srvACQ_o) ->
           crowd();
#ifdef M_BARGE                  /* who fits is let in past the queue */
           if :: FITS(_srvACQ_o) ->
                 i=0; do :: i<qn -> assert(!(lim[q[i]]>0 && st[q[i]]==WAIT)); i++ :: else -> break od;
#else
           if :: FITS(_srvACQ_o) && qn==0 ->
#endif
                 lim[_srvACQ_o]=T; grant(_srvACQ_o,_srvACQ_o); res=GRANTED
              :: else -> q[qn]=_srvACQ_o; qn++; lim[_srvACQ_o]=E; res=QUEUED fi
        :: found==NONE && !(_srvACQ_create && !ENDED(_srvACQ_o)) -> res=GONE
     fi
  fi;
  served() }
inline srvEND(_srvEND_o) {
  if :: hs[_srvEND_o] -> REMEMBER(_srvEND_o); hs[_srvEND_o]=0; exp[_srvEND_o]=0
#ifdef M_ENDALL                 /* the end of one is the end of all */
        ; i=0; do :: i<NO -> hs[i]=0; exp[i]=0; i++ :: else -> break od
#endif
     :: else -> qdel(_srvEND_o); REMEMBER(_srvEND_o)
  fi;
  promote(NONE); served() }
inline srvREN(_srvREN_o) {
  if :: hs[_srvREN_o] && exp[_srvREN_o]>0 -> exp[_srvREN_o]=MAX(exp[_srvREN_o],T); res=RENEWED; if :: !alive[P(_srvREN_o)] -> gh[_srvREN_o]=0 :: else fi
#ifdef M_RENEWALL               /* a renewal extends what everybody holds */
     ; i=0; do :: i<NO -> if :: hs[i] && exp[i]>0 -> exp[i]=T :: else fi; i++ :: else -> break od
#endif
     :: else -> res=NOTHELD
  fi;
  promote(NONE); served() }
inline srvDOWN(_srvDOWN_o) {     /* a renewal that also gives up to exclude the others */
#ifdef M_DOWNBLIND              /* makes a reader of whoever asks */
  if :: !hs[_srvDOWN_o] -> hs[_srvDOWN_o]=1; exp[_srvDOWN_o]=1 :: else fi;
#endif
#ifdef M_DOWNEND                /* ends what is held and asks anew */
  if :: hs[_srvDOWN_o] -> hs[_srvDOWN_o]=0; exp[_srvDOWN_o]=0; room[_srvDOWN_o]=ANY; q[qn]=_srvDOWN_o; qn++; lim[_srvDOWN_o]=E; promote(NONE) :: else fi;
#endif
  if :: hs[_srvDOWN_o] && exp[_srvDOWN_o]>0 -> room[_srvDOWN_o]=ANY; srvREN(_srvDOWN_o)
     :: else -> res=NOTHELD
  fi }
inline claim(_claim_o,_claim_rem,_claim_t) {
  many=0; i=0; do :: i<NO -> if :: i!=_claim_o && st[i]==HOLD -> many++; assert(rm[i]>many) :: else fi; i++ :: else -> break od;
  i=0; do :: i<NO -> assert(i==_claim_o || st[i]!=HOLD || rm[i]>many); i++ :: else -> break od;   /* S1: as many as each allows */
  assert(rm[_claim_o]>many);
  assert(_claim_t>base[_claim_o] && _claim_t>lex);                                                  /* S2 */
  if :: rm[_claim_o]==1 -> assert(_claim_t>lct); lex=_claim_t :: else fi;
  lct=MAX(lct,_claim_t);
  printf("o%d CLAIMS for %d token %d beside %d\n",_claim_o,_claim_rem,_claim_t,many); st[_claim_o]=HOLD; d[_claim_o]=_claim_rem; hh[_claim_o]=0; w[P(_claim_o)]=0 }
inline drop(_drop_o) {                /* forget the outstanding call: its request may still be executed */
  if :: call[_drop_o]==ACQ && crt[_drop_o] -> oa[_drop_o]=1 :: call[_drop_o]==ACQ && !crt[_drop_o] -> ob[_drop_o]=1 :: call[_drop_o]==REN -> orn[_drop_o]=1 :: else fi;
  call[_drop_o]=NOCALL; cr[_drop_o]=0; slw[_drop_o]=0; aged[_drop_o]=0; rt[_drop_o]=0 }
inline burn(_burn_o) { st[_burn_o]=END; d[_burn_o]=0; ack[_burn_o]=0; hh[_burn_o]=0; fl[_burn_o]=0; drop(_burn_o) }
inline send(_send_o,_send_k,_send_rem) {
  call[_send_o]=_send_k; cr[_send_o]=_send_rem; rf[_send_o]=1; slw[_send_o]=0; aged[_send_o]=0;
  crt[_send_o]=!acked[_send_o];
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
 :: atomic { st[o]==IDLE && alive[P(o)] && cu[P(o)]==o -> printf("o%d begins\n",o); st[o]=WAIT; ack[o]=E; acked[o]=0; base[o]=lct; send(o,ACQ,T) }
 /* refresh each tick */
 :: atomic { st[o]==WAIT && call[o]==NOCALL && !rf[o] -> printf("o%d refreshes\n",o); send(o,ACQ,T);
    }
 /* the server executes the outstanding call */
 :: atomic { call[o]==ACQ -> srvACQ(o,crt[o]); call[o]=res; printf("  S: ACQ o%d -> %d (tok %d)\n",o,res,tok); rt[o]=(res==GRANTED -> tk[o] : tok);
      if :: true :: fb>0 -> fb--; slw[o]=1 fi }
 :: atomic { call[o]==REN -> if :: rm[o]!=room[o] -> srvDOWN(o) :: else -> srvREN(o) fi; call[o]=res; printf("  S: REN o%d -> %d\n",o,res); rt[o]=tk[o];
      if :: true :: fb>0 -> fb--; slw[o]=1 fi }
 /* late duplicates */
 :: atomic { oa[o] -> oa[o]=0; srvACQ(o,1); printf("  S: late ACQ(create) o%d -> %d (tok %d)\n",o,res,tok) }
 :: atomic { ob[o] -> ob[o]=0; srvACQ(o,0); printf("  S: late ACQ(refresh) o%d -> %d (tok %d)\n",o,res,tok) }
 :: atomic { orn[o] -> orn[o]=0; if :: rm[o]!=room[o] -> srvDOWN(o) :: srvREN(o) fi; printf("  S: late REN o%d -> %d\n",o,res) }
 :: atomic { en[o] -> en[o]=0; srvEND(o); printf("  S: END o%d\n",o) }
 :: atomic { oe[o] -> oe[o]=0; srvEND(o); printf("  S: late END o%d\n",o) }
 /* replies */
 :: atomic { call[o]==GRANTED ->
      if :: st[o]==WAIT && cr[o]>=THR -> claim(o,cr[o],rt[o]); call[o]=NOCALL; slw[o]=0; cr[o]=0; rt[o]=0
         :: st[o]==WAIT && cr[o]<THR -> drop(o); st[o]=RF; send(o,REN,T)
         :: st[o]==HOLD -> d[o]=MAX(d[o],cr[o]); drop(o)
         :: else -> drop(o) fi }
 :: atomic { call[o]==QUEUED -> 
      if :: st[o]==WAIT -> ack[o]=MAX(ack[o],(cr[o]>T-E -> cr[o]-(T-E) : 0)); acked[o]=1;
            fl[o]=MAX(fl[o],rt[o])
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
      if :: !alive[P(o)] -> skip
         :: alive[P(o)] && st[o]==WAIT && res<=fl[o] -> skip           /* older than an answer "queued" */
         :: alive[P(o)] && st[o]==WAIT && res>fl[o] && ack[o]>=THR -> claim(o,ack[o],res)
         :: alive[P(o)] && st[o]==WAIT && res>fl[o] && ack[o]<THR -> drop(o); st[o]=RF; send(o,REN,T)
         :: alive[P(o)] && (st[o]==HOLD || st[o]==RF) -> skip
         :: alive[P(o)] && (st[o]==END || st[o]==IDLE) -> sendEND(o)   /* nobody waits with that owner */
      fi; res=0 }
 :: atomic { st[o]==RF && call[o]==NOCALL && !rf[o] -> send(o,REN,T) }
 :: atomic { st[o]==HOLD && call[o]==NOCALL && !rf[o] -> send(o,REN,T) }
 /* from here on the owner does no more than a reader may */
 :: atomic { st[o]==HOLD && MAYDOWN(o) -> printf("o%d downgrades\n",o); rm[o]=ANY; drop(o); send(o,REN,T) }
 /* release, cancel */
 :: atomic { st[o]==HOLD -> printf("o%d releases\n",o); burn(o); sendEND(o) }
 :: atomic { st[o]==WAIT || st[o]==RF -> printf("o%d cancelled\n",o); burn(o); sendEND(o) }
 /* next attempt */
 :: atomic { st[o]==END && P(o)==0 && o<EXTRA && cu[0]==o && alive[0] -> cu[0]=o+1 }
 /* crash */
 :: atomic { cb>0 && alive[P(o)] && cu[P(o)]==o && st[o]!=IDLE -> printf("CRASH of o%d\n",o); cb--; j=0; do :: j<NO -> gh[j]=0; j++ :: else -> break od; alive[P(o)]=0; w[P(o)]=0;
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
      j=0;
      do :: j<NO ->
         /* ghost: the server says held, nobody claims it or waits with that owner */
         if :: exp[j]>0 && hs[j] && (st[j]==END || st[j]==IDLE) -> gh[j]++; assert(gh[j]<=(alive[P(j)] -> GHOST : GDEAD)) :: else -> gh[j]=0 fi;
         if :: exp[j]>0 -> exp[j]-- :: else fi; j++
      :: else -> break od;
      j=0; i=0; x=0; found=0; res=0; many=0; least=0 }
 od }
init { atomic { i=0; do :: i<NP -> alive[i]=1; i++ :: else -> break od;
   room[0]=ROOM0; room[1]=ROOM1; room[2]=ROOM2;
#if NO>3
   room[3]=ROOM3;
#endif
   i=0; do :: i<NO -> rm[i]=room[i]; i++ :: else -> break od;
   cu[0]=0; i=1; do :: i<NP -> cu[i]=i+EXTRA; i++ :: else -> break od; i=0;
   do :: i<NO -> run Owner(i); i++ :: else -> break od; i=0; run Tick() } }
