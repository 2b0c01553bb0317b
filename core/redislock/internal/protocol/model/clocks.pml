/* Model (e): hand-over, as in handover.pml, by a server whose wall clock steps forward and back, that forgets all its data,
 * and that is told to end leases (oust). The clients' clocks only run. Server times are absolute. A token is the server's
 * time in finer units, and at least one more than the last. Every holder writes once to a resource that refuses a token
 * below the largest it has seen; the write may arrive at any later time, or never.
 * S1, S2 and S3 are asserted by -DS1, -DS2 and -DS3; what a run's adversary may do, by FWD, BACK, WIPE and OUST. */
#ifndef HID
#define HID hidden
#endif
#ifndef NP
#define NP 2
#endif
#ifndef NO
#define NO 2                    /* owners; process 0 has the surplus ones */
#endif
#ifndef E
#define E 2                     /* how long a place lasts */
#endif
#ifndef T
#define T 3                     /* TTL */
#endif
#ifndef FB
#define FB 1                    /* slow, lost and doubled messages */
#endif
#ifndef CB
#define CB 0                    /* crashes */
#endif
#ifndef FWD
#define FWD 0                   /* ticks of the one step forward; 0: none */
#endif
#ifndef BACK
#define BACK 0                  /* and of the one step back */
#endif
#ifndef WIPE
#define WIPE 0
#endif
#ifndef OUST
#define OUST 0
#endif
#ifndef HM
#define HM 1                    /* ticks a holder holds at most */
#endif
#ifndef GHOST
#define GHOST 2                 /* ticks that an ended owner of a live process may block */
#endif
#ifndef GDEAD
#define GDEAD T
#endif
#ifndef BOUND
#define BOUND 14
#endif
#ifndef SPAN
#define SPAN 7                  /* ticks until the end of time; the server's clock begins at BACK */
#endif
#define G 8                     /* of the finer units in a tick: each grant takes one at least */
#define NONE 15
#define EXTRA (NO-NP)
#define P(o) ((o)<=EXTRA -> 0 : (o)-EXTRA)
#define MAX(a,b) ((a)>(b) -> (a) : (b))
#define MIN(a,b) ((a)<(b) -> (a) : (b))
#define LEFT(t) ((t)>now -> (t)-now : 0)
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
#define OVER 8                  /* an end */
byte st[NO], d[NO], ack[NO], call[NO], cr[NO], rt[NO], hh[NO], fl[NO], tk[NO], base[NO];
bool slw[NO], aged[NO], rf[NO], acked[NO], crt[NO];
bool en[NO], oe[NO], re[NO], oa[NO], ob[NO], orn[NO];    /* END now / late / again; late ACQ with / without create; late REN */
byte pu[NO]; bool pl[NO], wr[NO];                        /* pushes: granted, lost; a write under way */
bool alive[NP]; byte cu[NP], w[NP];
byte now=BACK, ticks, sub, ow=NONE, exp, dur, tok, z, q[NO], qn, lim[NO];   /* the server */
byte nth, hg, gt[8], gr[NO];                             /* the order of the grants, which nobody sees: how many, the holder's, the token of each, the grant of each claim */
byte seen, last,lct;                              /* the resource: the largest token, the latest grant that wrote; the largest token claimed */
byte fb=FB, cb=CB, gh; bool fw=(FWD>0), bk=(BACK>0), wi=WIPE, ou=OUST, oo; byte below, spare;   /* an oust under way: up to which token, and who came later */
HID byte i, j, x, res, found, kind, create, reply;
#define ENDED(o) ((z>>(o))&1)
#define REMEMBER(o) z=z|(1<<(o))

inline inq(_inq_o) { found=NONE; i=0; do :: i<qn -> if :: q[i]==_inq_o -> found=i :: else fi; i++ :: else -> break od }
inline qdel(_qdel_o) { inq(_qdel_o); if :: found!=NONE -> i=found; do :: i+1<qn -> q[i]=q[i+1]; i++ :: else -> break od; qn--; q[qn]=0; lim[_qdel_o]=0 :: else fi }
inline settle() {
#ifndef M_NOCLAMP               /* left out: a lease lasts no longer than it was ever given */
  if :: ow!=NONE && exp>now+dur -> exp=now+dur :: else fi;
#endif
  if :: ow!=NONE && exp<=now -> REMEMBER(ow); ow=NONE; exp=0; dur=0 :: else fi }
inline grant(_g_o,_g_len,_g_x) {
#ifdef M_CLOCK                  /* a token is the clock alone */
  sub++; tok=now*G+sub;
#else
#ifdef M_COUNTER                /* a token is the last one and one */
  tok++;
#else
  sub++; tok=MAX(tok+1,now*G+sub);
#endif
#endif
  assert(sub<G); ow=_g_o; dur=_g_len; exp=_g_x; nth++; assert(nth<8); hg=nth; gt[nth]=tok; gh=0; printf("  S: grant o%d tok %d exp %d now %d\n",ow,tok,exp,now) }
inline promote(_p_self) {
  do :: ow==NONE && qn>0 -> x=q[0]; j=MIN(lim[x],now+E); qdel(x);
        if :: j>now -> grant(x,E,j); if :: x!=_p_self -> pu[x]=tok :: else fi :: else fi
     :: else -> break od }
/* The scripts acquire, end and renew, as one: what owner o asks for. res is the answer. */
inline serve(o) {
  settle(); res=0; inq(o);
  if
  :: kind==ACQ -> if :: found!=NONE -> lim[o]=now+E :: else fi; promote(o)
  :: kind==REN -> if :: ow==o -> exp=MAX(exp,now+T); dur=T; res=RENEWED; if :: !alive[P(o)] -> gh=0 :: else fi :: else -> res=NOTHELD fi; promote(NONE)
  :: kind==OVER -> if :: ow==o -> ow=NONE; exp=0; dur=0 :: else -> qdel(o) fi; REMEMBER(o); promote(NONE)
  fi;
  if :: kind==ACQ && ow==o -> exp=MAX(exp,now+T); dur=T; res=GRANTED; if :: !alive[P(o)] -> gh=0 :: else fi
     :: kind==ACQ && ow!=o -> inq(o);
        if :: found!=NONE -> res=QUEUED
           :: found==NONE && create && !ENDED(o) ->
              if :: ow==NONE -> grant(o,T,now+T); res=GRANTED
                 :: else -> q[qn]=o; qn++; lim[o]=now+E; res=QUEUED fi
           :: else -> res=GONE
        fi
     :: else
  fi }
inline srvOUST() {
  settle();
#ifdef M_OUSTBLIND              /* ends whoever holds, so that a repetition ends a later lease */
  if :: ow!=NONE ->
#else
  if :: ow!=NONE && tok<=below ->   /* the holder's token is the latest */
#endif
        assert(hg<=spare); printf("  S: oust o%d\n",ow); REMEMBER(ow); pl[ow]=1; ow=NONE; exp=0; dur=0
        ; sub++; tok=MAX(tok+1,now*G+sub)
     :: else fi;
  promote(NONE) }

inline claim(_c_o,_c_rem,_c_t) {
#ifdef S1
  i=0; do :: i<NO -> assert(i==_c_o || st[i]!=HOLD); i++ :: else -> break od;
#endif
#ifdef S2
  assert(_c_t>base[_c_o]);       /* above every token that had been returned when this attempt began */
#endif
  printf("o%d CLAIMS for %d token %d\n",_c_o,_c_rem,_c_t);
  i=1; do :: i<nth && gt[i]!=_c_t -> i++ :: else -> break od; gr[_c_o]=i;
  st[_c_o]=HOLD; d[_c_o]=_c_rem; tk[_c_o]=_c_t; wr[_c_o]=1; lct=MAX(lct,_c_t); hh[_c_o]=0; w[P(_c_o)]=0 }
inline drop(_drop_o) {          /* forget the outstanding call: a slow request may still be executed */
  if :: !slw[_drop_o] -> skip :: slw[_drop_o] && call[_drop_o]==ACQ && crt[_drop_o] -> oa[_drop_o]=1 :: slw[_drop_o] && call[_drop_o]==ACQ && !crt[_drop_o] -> ob[_drop_o]=1 :: slw[_drop_o] && call[_drop_o]==REN -> orn[_drop_o]=1 :: else fi;
  call[_drop_o]=NOCALL; cr[_drop_o]=0; slw[_drop_o]=0; aged[_drop_o]=0; rt[_drop_o]=0 }
inline burn(_burn_o) { st[_burn_o]=END; d[_burn_o]=0; ack[_burn_o]=0; hh[_burn_o]=0; fl[_burn_o]=0; base[_burn_o]=0; drop(_burn_o) }
inline send(_send_o,_send_k,_send_rem) {
  call[_send_o]=_send_k; cr[_send_o]=_send_rem; rf[_send_o]=1; slw[_send_o]=0; aged[_send_o]=0;
  crt[_send_o]=!acked[_send_o];
  if :: true
     :: fb>0 -> fb--; slw[_send_o]=1
     :: fb>0 -> fb--; if :: _send_k==ACQ && crt[_send_o] -> oa[_send_o]=1 :: _send_k==ACQ && !crt[_send_o] -> ob[_send_o]=1 :: else -> orn[_send_o]=1 fi
  fi }
inline sendEND(_sendEND_o) { if :: true -> en[_sendEND_o]=1 :: fb>0 -> fb--; oe[_sendEND_o]=1; re[_sendEND_o]=1 :: fb>0 -> fb--; oe[_sendEND_o]=1; en[_sendEND_o]=1 fi }

proctype Owner(byte o) {
 endw: do
 :: atomic { st[o]==IDLE && alive[P(o)] && cu[P(o)]==o -> printf("o%d begins\n",o); st[o]=WAIT; ack[o]=E; acked[o]=0; base[o]=lct; send(o,ACQ,T) }
 :: atomic { st[o]==WAIT && call[o]==NOCALL && !rf[o] -> send(o,ACQ,T) }
 :: atomic { call[o]==ACQ || call[o]==REN || oa[o] || ob[o] || orn[o] || en[o] || oe[o] ->
      reply=0; create=0;
      if :: call[o]==ACQ || call[o]==REN -> kind=call[o]; create=crt[o]; reply=1
         :: oa[o] -> oa[o]=0; kind=ACQ; create=1
         :: ob[o] -> ob[o]=0; kind=ACQ
         :: orn[o] -> orn[o]=0; kind=REN
         :: en[o] -> en[o]=0; kind=OVER
         :: oe[o] -> oe[o]=0; kind=OVER
      fi;
      serve(o); printf("  S: %d of o%d -> %d, answered %d (ow %d exp %d tok %d now %d)\n",kind,o,res,reply,ow,exp,tok,now);
      if :: reply -> call[o]=res; rt[o]=tok; if :: true :: fb>0 -> fb--; slw[o]=1 fi :: else fi;
      kind=0; create=0; reply=0 }
 :: atomic { call[o]==GRANTED ->
      if :: st[o]==WAIT && cr[o]>0 -> claim(o,cr[o],rt[o]); drop(o)
         :: st[o]==WAIT && cr[o]==0 -> drop(o); st[o]=RF; send(o,REN,T)
         :: st[o]==HOLD -> d[o]=MAX(d[o],cr[o]); drop(o)
         :: else -> drop(o) fi }
 :: atomic { call[o]==QUEUED -> 
      if :: st[o]==WAIT -> ack[o]=MAX(ack[o],(cr[o]>T-E -> cr[o]-(T-E) : 0)); acked[o]=1; fl[o]=MAX(fl[o],rt[o]) :: else fi; drop(o) }
 :: atomic { call[o]==GONE -> if :: st[o]==WAIT -> burn(o); sendEND(o) :: else -> drop(o) fi }
 :: atomic { call[o]==RENEWED ->
      if :: st[o]==RF && cr[o]>0 -> claim(o,cr[o],rt[o]); drop(o)
         :: st[o]==HOLD -> d[o]=MAX(d[o],cr[o]); drop(o)
         :: else -> drop(o) fi }
 :: atomic { call[o]==NOTHELD -> if :: st[o]==RF || st[o]==HOLD -> burn(o); sendEND(o) :: else -> drop(o) fi }
 :: atomic { call[o]!=NOCALL && slw[o] -> drop(o) }
 :: atomic { pu[o]!=0 && fb>0 -> fb--; pu[o]=0 }
 :: atomic { pu[o]!=0 -> res=pu[o]; pu[o]=0; printf("push tok %d to o%d (state %d)\n",res,o,st[o]);
      if :: !alive[P(o)] || st[o]==HOLD || st[o]==RF || (st[o]==WAIT && res<=fl[o]) -> skip
         :: alive[P(o)] && st[o]==WAIT && res>fl[o] && ack[o]>0 -> claim(o,ack[o],res)
         :: alive[P(o)] && st[o]==WAIT && res>fl[o] && ack[o]==0 -> drop(o); st[o]=RF; send(o,REN,T)
         :: alive[P(o)] && (st[o]==END || st[o]==IDLE) -> sendEND(o)
      fi; res=0 }
 :: atomic { pl[o] && fb>0 -> fb--; pl[o]=0 }
 :: atomic { pl[o] -> pl[o]=0; if :: alive[P(o)] && (st[o]==HOLD || st[o]==RF || st[o]==WAIT) -> printf("o%d is ousted\n",o); burn(o); sendEND(o) :: else fi }
 :: atomic { st[o]==RF && call[o]==NOCALL && !rf[o] -> send(o,REN,T) }
 :: atomic { st[o]==HOLD && call[o]==NOCALL && !rf[o] -> send(o,REN,T) }
 :: atomic { st[o]==HOLD -> printf("o%d releases\n",o); burn(o); sendEND(o) }
 :: atomic { st[o]==WAIT || st[o]==RF -> printf("o%d cancelled\n",o); burn(o); sendEND(o) }
 :: atomic { st[o]==END && P(o)==0 && o<EXTRA && cu[0]==o && alive[0] -> cu[0]=o+1 }
 :: atomic { cb>0 && alive[P(o)] && cu[P(o)]==o && st[o]!=IDLE -> printf("CRASH of o%d\n",o); cb--; gh=0; alive[P(o)]=0; w[P(o)]=0;
      burn(o); if :: en[o] -> en[o]=0; oe[o]=1 :: else fi; pu[o]=0 }
 /* a write arrives, or never will */
 :: atomic { wr[o] -> wr[o]=0;
#ifndef M_NOGUARD
      if :: tk[o]>=seen ->
#else
      if :: true ->
#endif
            printf("write of o%d with %d\n",o,tk[o]); seen=MAX(seen,tk[o]);
#ifdef S3
            assert(gr[o]>=last);   /* who was granted the key later has not yet written */
#endif
            last=gr[o]
         :: else -> printf("write of o%d with %d refused\n",o,tk[o])
      fi; tk[o]=0 }
 :: atomic { wr[o] && st[o]!=HOLD -> wr[o]=0; tk[o]=0 }
 od }
proctype Faults() {
 endf: do
#if FWD>0
 :: atomic { fw -> fw=0; now=now+FWD; sub=0; printf("the clock steps forward to %d\n",now) }
#endif
#if BACK>0
 :: atomic { bk -> bk=0; now=now-BACK; printf("the clock steps back to %d\n",now) }
#endif
#if WIPE>0
 :: atomic { wi -> wi=0; printf("the server forgets all\n"); ow=NONE; exp=0; dur=0; tok=0; z=0; gh=0; i=0; do :: i<NO -> q[i]=0; lim[i]=0; i++ :: else -> break od; qn=0 }
#endif
#if OUST>0
 :: atomic { ou && ow!=NONE -> ou=0; oo=1; below=tok; spare=nth }     /* of the lease that an inspection has shown */
 :: atomic { oo -> srvOUST() }                                     /* may be repeated at any later time */
#endif
 :: false
 od }
#define UNSETTLED(o) (en[o] || pu[o] || pl[o] || (call[o]!=NOCALL && (!slw[o] || aged[o])) || \
   ((st[o]==WAIT || st[o]==RF) && call[o]==NOCALL && !rf[o]) || (st[o]==HOLD && hh[o]>=HM))
proctype Tick() {
 endt: do
 :: atomic { !(UNSETTLED(0) || UNSETTLED(1)
#if NO>2
      || UNSETTLED(2)
#endif
      ) && ticks<SPAN -> printf("tick\n");
      j=0;
      do :: j<NO ->
         if :: re[j] -> re[j]=0; if :: alive[P(j)] -> en[j]=1 :: else fi :: else fi;
         if :: ack[j]>0 -> ack[j]-- :: else fi;
         if :: cr[j]>0 -> cr[j]-- :: else fi;
         if :: st[j]==HOLD -> hh[j]++; d[j]--; if :: d[j]==0 -> burn(j); re[j]=1 :: else fi :: else fi;
         if :: call[j]!=NOCALL -> aged[j]=1 :: else fi;
         if :: st[j]==WAIT || st[j]==RF -> w[P(j)]++; assert(w[P(j)]<=BOUND) :: else fi;
         rf[j]=0; j++
      :: else -> break od;
      if :: exp>now && ow!=NONE && (st[ow]==END || st[ow]==IDLE) -> gh++; assert(gh<=(alive[P(ow)] -> GHOST : GDEAD)) :: else -> gh=0 fi;
      now++; ticks++; sub=0; j=0; i=0; x=0; found=0; res=0 }
 od }
init { atomic { i=0; do :: i<NP -> alive[i]=1; i++ :: else -> break od;
   cu[0]=0; i=1; do :: i<NP -> cu[i]=i+EXTRA; i++ :: else -> break od; i=0;
   do :: i<NO -> run Owner(i); i++ :: else -> break od; i=0; run Faults(); run Tick() } }
