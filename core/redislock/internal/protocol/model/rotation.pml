/* Model (d): two engines with callers of their own, and the queue at the server. An engine that has the lease hands it
 * on to its callers, with the next token of a block of B. Once it knows that others wait it has its turn, of TH holds or
 * until the next tick; then, and at the block's end, it rotates: one script ends the old owner and has a new one granted,
 * or appended if somebody waits. What it last heard about others it trusts for a tick; then it renews first.
 * Entries of the queue die with their process, or are withdrawn. Requests and replies may be slow, lost or doubled,
 * pushes lost. Relative time, as in handover.pml; a caller holds for HM ticks at most. */
#ifndef B
#define B 8
#endif
#ifndef TH
#define TH 2
#endif
#ifndef E
#define E 2
#endif
#ifndef T
#define T 3
#endif
#ifndef HM
#define HM 1
#endif
#ifndef FB
#define FB 1
#endif
#ifndef CB
#define CB 0
#endif
#ifndef OWN
#define OWN 3                    /* owners in all; the server remembers as many that ended */
#endif
#ifndef LIM
#define LIM 7                    /* claims in all */
#endif
#ifndef BOUND
#define BOUND 4                  /* ticks that an engine waits at most, if no other crashes */
#endif
#ifndef GHOST
#define GHOST 2                  /* ticks that an owner whom nobody wants may block, if its process lives */
#endif
#ifndef HID
#define HID hidden
#endif
#define NONE 15
#define MAX(a,b) ((a)>(b) -> (a) : (b))
/* phases of an engine: nothing, a place asked for, a lease */
#define IDLE 0
#define WAIT 1
#define HAVE 2
/* its call: none, to be executed, and what it is answered */
#define NOCALL 0
#define ACQ 1                    /* may create the owner */
#define REF 2
#define ROT 3
#define REN 4
#define GRANTED 5
#define QUEUED 6
#define OVER 7
#define GONE 8                   /* ROT: this run has not ended the old owner */
#define RENEWED 9
#define NOTHELD 10
#define END 11
byte ow=NONE, exp, tok, q[OWN], qn, lim[OWN];     /* the server; owners 0..OWN-1 */
bool z[OWN], alive[2];
byte nown, nclaim, lct, fb=FB, cb=CB, gh;
byte ph[2], mn[2], mo[2], ack[2], fl[2], d[2], base[2], k[2], age[2], hh[2], w[2]; bool con[2], act[2], known[2], rf[2];
byte call[2], cr[2], ct[2]; bool cw[2], slw[2], aged[2];            /* D candidate, token, others wait */
byte pu[OWN]; bool pc[OWN], pw[OWN];                               /* pushes: granted, and whether others wait then; others wait */
bool en[OWN], oe[OWN], re[OWN], la[OWN], lb[OWN], lr[OWN], ln[OWN]; byte lt[OWN], eng[OWN];  /* END now, late, again; late ACQ, REF, ROT from lt, REN; engine */
HID byte i, j, x, res, found, kind, old, seeks, reply;

inline inq(_inq_o) { found=NONE; i=0; do :: i<qn -> if :: q[i]==_inq_o -> found=i :: else fi; i++ :: else -> break od }
inline qdel(_qdel_o) { inq(_qdel_o); if :: found!=NONE -> i=found; do :: i+1<qn -> q[i]=q[i+1]; i++ :: else -> break od; qn--; q[qn]=0; lim[_qdel_o]=0 :: else fi }
#ifdef DEAF                      /* no engine hears from others who wait, but by asking */
inline want() { skip }
#else
inline want() { if :: ow!=NONE && alive[eng[ow]] -> pw[ow]=1 :: else fi }
#endif
inline promote(_p_self) {
  do :: ow==NONE && qn>0 -> x=q[0];
#ifdef M_DEADHEAD                /* a dead head keeps its place until it is withdrawn */
        if :: lim[x]==0 -> break :: else fi;
#endif
        j=lim[x]; qdel(x);
        if :: j>0 -> assert(!z[x]); ow=x; exp=j; tok++; gh=0; if :: x!=_p_self -> pu[x]=tok; pc[x]=(qn>0) :: else fi :: else fi
     :: else -> break od }
/* a late message of a dead process may still extend its lease */
inline lives(_v_o) { if :: !alive[eng[_v_o]] -> gh=0 :: else fi }
/* The scripts, as one: what owner o asks for. res is the answer. seeks: o is to be granted the key or a place. */
inline serve(o) {
  seeks=0; res=0;
  if :: ow!=NONE && exp==0 -> z[ow]=1; ow=NONE :: else fi;
  if
  :: kind==ACQ || kind==REF -> seeks=1
  :: kind==REN -> if :: ow==o -> exp=MAX(exp,T); lives(o); res=RENEWED :: else -> res=NOTHELD fi
  :: kind==END ->
     if :: ow==o -> ow=NONE; exp=0
#ifndef M_NODROP                 /* left out: who is withdrawn gives up its place */
        :: else -> qdel(o)
#else
        :: else
#endif
     fi; z[o]=1
  :: kind==ROT ->
     if :: ow==old -> ow=NONE; exp=0; seeks=1
#ifdef M_NEXTFIRST               /* the new owner comes before those who wait */
           ; i=0; do :: i<qn -> assert(lim[q[i]]==0); i++ :: else -> break od
#endif
        :: else -> qdel(old); res=GONE
     fi; z[old]=1
  fi;
  if :: seeks -> inq(o); if :: found!=NONE -> lim[o]=E :: else fi; promote(o) :: else -> promote(NONE) fi;
  if :: seeks && ow==o -> exp=MAX(exp,T); lives(o); res=GRANTED
     :: seeks && ow!=o -> inq(o);
        if :: found!=NONE -> res=QUEUED; if :: found==0 -> want() :: else fi
           :: found==NONE && (kind==REF || z[o]) -> res=OVER
           :: found==NONE && kind!=REF && !z[o] ->
              if :: ow==NONE && qn==0 -> ow=o; exp=T; tok++; gh=0; res=GRANTED
                 :: else -> q[qn]=o; qn++; lim[o]=E; res=QUEUED; if :: qn==1 -> want() :: else fi fi
        fi
     :: else
  fi }

inline sendEND(_x_o) { if :: true -> en[_x_o]=1 :: fb>0 -> fb--; oe[_x_o]=1; re[_x_o]=1 :: fb>0 -> fb--; oe[_x_o]=1; en[_x_o]=1 fi }
inline late(_l_p) {              /* a slow request that is given up may still be executed */
  if :: !slw[_l_p] -> skip :: slw[_l_p] && call[_l_p]==ACQ -> la[mn[_l_p]]=1 :: slw[_l_p] && call[_l_p]==REF -> lb[mn[_l_p]]=1
     :: slw[_l_p] && call[_l_p]==ROT -> lr[mn[_l_p]]=1; lt[mn[_l_p]]=mo[_l_p] :: slw[_l_p] && call[_l_p]==REN -> ln[mn[_l_p]]=1 :: else fi }
inline answered(_w_p) { call[_w_p]=NOCALL; cr[_w_p]=0; ct[_w_p]=0; cw[_w_p]=0; slw[_w_p]=0; aged[_w_p]=0 }
inline idle(_i_p) { late(_i_p); answered(_i_p); ph[_i_p]=IDLE; mn[_i_p]=NONE; mo[_i_p]=NONE; ack[_i_p]=0; fl[_i_p]=0; d[_i_p]=0; base[_i_p]=0; k[_i_p]=0;
  age[_i_p]=0; hh[_i_p]=0; con[_i_p]=0; act[_i_p]=0; known[_i_p]=0; w[_i_p]=0 }
inline giveup(_g_p) { j=mn[_g_p]; x=mo[_g_p]; idle(_g_p); sendEND(j); if :: x!=NONE -> sendEND(x) :: else fi }
inline send(_d_p,_d_k) { call[_d_p]=_d_k; cr[_d_p]=T; rf[_d_p]=1; slw[_d_p]=0; aged[_d_p]=0;
  if :: true :: fb>0 -> fb--; slw[_d_p]=1 :: fb>0 -> fb--; slw[_d_p]=1; late(_d_p); slw[_d_p]=0 fi }
inline claim(_c_p) {
  assert(!(act[1-_c_p] && d[1-_c_p]>0));                            /* S1 */
  assert(base[_c_p]*B+k[_c_p] > lct); lct=base[_c_p]*B+k[_c_p];        /* S2 */
  printf("e%d CLAIMS o%d token %d d %d\n",_c_p,mn[_c_p],base[_c_p]*B+k[_c_p],d[_c_p]);
  act[_c_p]=1; hh[_c_p]=0; nclaim++ }
inline heard(_h_p,_h_w) { if :: _h_w && !con[_h_p] -> con[_h_p]=1; age[_h_p]=0 :: !(_h_w) -> con[_h_p]=0; age[_h_p]=0 :: else fi }
/* a lease, of which so much is left; too little to begin: it is renewed first */
inline take(_t_p,_t_d,_t_t,_t_w) {
  ph[_t_p]=HAVE; d[_t_p]=_t_d; base[_t_p]=_t_t; k[_t_p]=0; con[_t_p]=0; age[_t_p]=0; w[_t_p]=0; mo[_t_p]=NONE; ack[_t_p]=0; fl[_t_p]=0; known[_t_p]=0;
  heard(_t_p,_t_w); late(_t_p); answered(_t_p);
  if :: d[_t_p]>0 -> claim(_t_p) :: else -> send(_t_p,REN) fi }
#ifdef M_NOTURN                  /* goes on to the block's end whoever waits */
#define USEDUP(p) (k[p]+1>=B)
#else
#define USEDUP(p) (k[p]+1>=B || (con[p] && (k[p]+1>=TH || age[p]>0)))
#endif
inline rotate(_o_p) {
  if :: nown<OWN -> printf("e%d rotates o%d to o%d\n",_o_p,mn[_o_p],nown);
        mo[_o_p]=mn[_o_p]; mn[_o_p]=nown; eng[nown]=_o_p; nown++; ph[_o_p]=WAIT; ack[_o_p]=E; fl[_o_p]=0; known[_o_p]=0; w[_o_p]=0; k[_o_p]=0; con[_o_p]=0; age[_o_p]=0;
#ifdef M_RUNON                   /* a caller goes on meanwhile, on what is left of the old lease */
        act[_o_p]=1; hh[_o_p]=0; base[_o_p]=0;
#else
        d[_o_p]=0; base[_o_p]=0;
#endif
        send(_o_p,ROT)
     :: else -> j=mn[_o_p]; idle(_o_p); sendEND(j) fi }

proctype Engine(byte p) {
 ende: do
 :: atomic { alive[p] && ph[p]==IDLE && nown<OWN && nclaim<LIM -> printf("e%d asks with o%d\n",p,nown); mn[p]=nown; eng[nown]=p; nown++; ph[p]=WAIT; ack[p]=E; send(p,ACQ) }
 /* replies */
 :: atomic { call[p]==GRANTED -> 
      if :: ph[p]==WAIT -> take(p,cr[p],ct[p],cw[p])
         :: else -> answered(p) fi }
 :: atomic { call[p]==QUEUED ->
      if :: ph[p]==WAIT -> known[p]=1; mo[p]=NONE; ack[p]=MAX(ack[p],(cr[p]>T-E -> cr[p]-(T-E) : 0)); fl[p]=MAX(fl[p],ct[p]) :: else fi;
      answered(p) }
 :: atomic { call[p]==GONE -> known[p]=1; mo[p]=NONE; answered(p); rf[p]=0 }   /* asked at once what became of the new owner */
 :: atomic { call[p]==OVER -> answered(p); giveup(p) }
 :: atomic { call[p]==RENEWED -> d[p]=MAX(d[p],cr[p]);
      if :: d[p]==0 -> answered(p); send(p,REN)
         :: else -> heard(p,cw[p]); i=ct[p]; answered(p);
            if :: base[p]!=0 && i==base[p] && !act[p] && hh[p]==NONE ->      /* before a hand-off */
                  hh[p]=0; if :: USEDUP(p) -> rotate(p) :: else -> k[p]++; claim(p) fi
               :: else -> base[p]=i; k[p]=0; claim(p) fi fi }
 :: atomic { call[p]==NOTHELD -> answered(p); giveup(p) }
 /* no answer in time */
 :: atomic { call[p]!=NOCALL && slw[p] -> printf("e%d times out\n",p); late(p);
      if :: ph[p]==WAIT && !known[p] && ack[p]>0 -> i=(mo[p]!=NONE -> ROT : ACQ); answered(p); send(p,i)
         :: ph[p]==WAIT && known[p] -> answered(p)
         :: true -> answered(p); giveup(p) fi }
 :: atomic { ph[p]==WAIT && known[p] && call[p]==NOCALL && !rf[p] -> send(p,REF) }
 /* pushes */
 :: atomic { ph[p]==WAIT && pu[mn[p]]!=0 -> i=pu[mn[p]]; pu[mn[p]]=0;
      if :: i<=fl[p] :: i>fl[p] -> printf("push to e%d\n",p); take(p,ack[p],i,pc[mn[p]]) fi }
 :: atomic { ph[p]!=IDLE && pw[mn[p]] -> pw[mn[p]]=0; if :: ph[p]==HAVE -> printf("e%d hears\n",p); heard(p,1) :: else fi }
 /* callers */
 :: atomic { ph[p]==HAVE && act[p] && d[p]>0 -> act[p]=0; hh[p]=0;
      if :: nclaim<LIM ->
            if :: USEDUP(p) -> rotate(p)
#ifndef M_STALE                  /* left out: what was heard once is trusted for ever */
               :: !USEDUP(p) && !con[p] && age[p]>0 -> hh[p]=NONE; send(p,REN)
               :: !USEDUP(p) && (con[p] || age[p]==0) -> k[p]++; claim(p)
#else
               :: else -> k[p]++; claim(p)
#endif
            fi
         :: true -> printf("e%d releases o%d\n",p,mn[p]); j=mn[p]; idle(p); sendEND(j) fi }
#ifdef M_RUNON
 :: atomic { ph[p]==WAIT && act[p] -> act[p]=0; d[p]=0; hh[p]=0 }
#endif
 :: atomic { ph[p]==WAIT -> printf("e%d cancels o%d\n",p,mn[p]); giveup(p) }
 :: atomic { cb>0 && alive[p] && ph[p]!=IDLE -> printf("e%d CRASHES\n",p); cb--; alive[p]=0; gh=0; idle(p);
      i=0; do :: i<nown -> if :: eng[i]==p -> if :: en[i] -> en[i]=0; oe[i]=1 :: else fi; re[i]=0; pu[i]=0; pw[i]=0 :: else fi; i++ :: else -> break od }
 od }
/* What concerns one owner: its requests reach the server, at once or late; pushes are lost, or name an owner that nobody
 * waits with. */
#define ASKS(o) (mn[eng[o]]==o && call[eng[o]]>=ACQ && call[eng[o]]<=REN)
proctype Net(byte o) {
 endn: do
 :: atomic { ASKS(o) || en[o] || oe[o] || la[o] || lb[o] || lr[o] || ln[o] ->
      reply=0; old=NONE;
      if :: ASKS(o) -> reply=1; kind=call[eng[o]]; old=mo[eng[o]]
         :: en[o] -> en[o]=0; kind=END
         :: oe[o] -> oe[o]=0; kind=END
         :: la[o] -> la[o]=0; kind=ACQ
         :: lb[o] -> lb[o]=0; kind=REF
         :: lr[o] -> lr[o]=0; kind=ROT; old=lt[o]; lt[o]=0
         :: ln[o] -> ln[o]=0; kind=REN
      fi;
      serve(o); printf("  S: %d of o%d (old o%d) -> %d, answered %d (ow %d exp %d tok %d qn %d)\n",kind,o,old,res,reply,ow,exp,tok,qn);
      if :: reply -> call[eng[o]]=res; ct[eng[o]]=tok; cw[eng[o]]=(qn>0); if :: slw[eng[o]]==0 && fb>0 -> fb--; slw[eng[o]]=1 :: true fi
         :: else fi;
      kind=0; old=0; seeks=0; reply=0 }
 :: atomic { (pu[o]!=0 || pw[o]) && fb>0 -> fb--; printf("a push to o%d is lost\n",o); pu[o]=0; pw[o]=0 }
 :: atomic { pu[o]!=0 && mn[eng[o]]!=o -> pu[o]=0; if :: alive[eng[o]] -> sendEND(o) :: else fi }
 :: atomic { pu[o]!=0 && mn[eng[o]]==o && ph[eng[o]]!=WAIT -> pu[o]=0 }
 :: atomic { pw[o] && mn[eng[o]]!=o -> pw[o]=0 }
 od }
#define OPEN(p) ((call[p]!=NOCALL && (!slw[p] || aged[p])) || (ph[p]==WAIT && known[p] && call[p]==NOCALL && !rf[p]) || (act[p] && hh[p]>=HM))
#define SENT(o) (en[o] || pu[o]!=0 || pw[o])
proctype Tick() {
 endt: do
 :: atomic { !(OPEN(0) || OPEN(1) || SENT(0) || SENT(1) || SENT(2)
#if OWN>3
      || SENT(3)
#endif
      ) -> printf("tick\n");
      /* nobody wants the owner that the server takes for the holder */
      if :: ow!=NONE && exp>0 && mn[eng[ow]]!=ow && mo[eng[ow]]!=ow -> gh++; assert(gh<=(alive[eng[ow]] -> GHOST : T)) :: else -> gh=0 fi;
      j=0; do :: j<2 ->
         if :: d[j]>0 -> d[j]--;
               if :: d[j]==0 && ph[j]==HAVE -> act[j]=0; if :: call[j]==NOCALL -> re[mn[j]]=1; idle(j) :: else fi
                  :: d[j]==0 && ph[j]!=HAVE -> act[j]=0
                  :: else fi
            :: else fi;
         if :: act[j] -> hh[j]++ :: else fi;
         if :: ph[j]==HAVE && age[j]<1 -> age[j]++ :: else fi;
         if :: ack[j]>0 -> ack[j]-- :: else fi; if :: cr[j]>0 -> cr[j]-- :: else fi;
         if :: call[j]!=NOCALL -> aged[j]=1 :: else fi;
         if :: ph[j]==WAIT -> w[j]++; assert(w[j]<=BOUND) :: else fi;
         rf[j]=0; j++ :: else -> break od;
      j=0; do :: j<OWN -> if :: re[j] -> re[j]=0; if :: alive[eng[j]] -> en[j]=1 :: else fi :: else fi;
         if :: lim[j]>0 -> lim[j]-- :: else fi; j++ :: else -> break od;
      if :: exp>0 -> exp-- :: else fi; i=0; j=0; x=0; found=0; res=0 }
 od }
init { atomic { alive[0]=1; alive[1]=1; mn[0]=NONE; mn[1]=NONE; mo[0]=NONE; mo[1]=NONE;
   run Engine(0); run Engine(1); i=0; do :: i<OWN -> run Net(i); i++ :: else -> break od; i=0; run Tick() } }
