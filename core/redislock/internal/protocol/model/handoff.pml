/* Model (b): two engines share one lock. Inside an engine callers take turns on one lease with the next token of a
 * block of B (hand-off). At the block's end the engine rotates: in one script the old owner ends and a new owner gets
 * the next token, or the other process gets the lock if it waits. Renewals and ends are in flight meanwhile; requests and
 * replies may be slow, lost or doubled. Relative time, as in handover.pml. */
#ifndef B
#define B 2
#endif
#ifndef E
#define E 2
#endif
#ifndef T
#define T 3
#endif
#ifndef FB
#define FB 2
#endif
#ifndef OWN
#define OWN 5                    /* owners in all */
#endif
#ifndef LIM
#define LIM 6                    /* claims in all */
#endif
#ifndef HID
#define HID hidden
#endif
#define MAX(a,b) ((a)>(b) -> (a) : (b))
#define NOCALL 0
#define ACQ 1
#define ROT 2
#define REN 3
#define OK 4                     /* replies to ACQ, ROT */
#define BUSY 5
#define ROK 6                    /* replies to REN */
#define RNO 7
byte ow, exp, tok;               /* server; owners 1..OWN, 0 free */
byte nown, nclaim, lct, fb=FB;
byte own[2], d[2], base[2], k[2]; bool act[2], cal[2];   /* lease of an engine; act: a caller is inside */
byte mk[2], mo[2], mn[2], mr[2], mt[2]; bool ms[2], ma[2];    /* acquire/rotate call: kind, old, new, D candidate, token, slow, aged */
byte rk[2], ro[2], rr[2]; bool rs[2], ra[2];             /* renewal call */
bool en[OWN+1], oe[OWN+1], re[OWN+1], la[OWN+1], lr[OWN+1]; byte lt[OWN+1];  /* END now/late/again; late ACQ, REN, ROT to this owner (from lt) */
bool z[OWN+1], rn[2];
HID byte i, j, res;

inline fresh() { if :: ow!=0 && exp==0 -> z[ow]=1; ow=0 :: else fi }
inline sACQ(_sa_o) { fresh();
  if :: ow==_sa_o -> exp=MAX(exp,T); res=OK
     :: ow==0 && !z[_sa_o] -> ow=_sa_o; exp=T; tok++; res=OK
     :: else -> res=BUSY fi }
inline sROT(_sr_o,_sr_n) { fresh();
  if :: ow==_sr_n -> exp=MAX(exp,T);
#ifdef N_ROTTWICE
        tok++;
#endif
        res=OK
     :: ow==_sr_o && _sr_o!=0 && !z[_sr_n] -> z[_sr_o]=1; ow=_sr_n; exp=T; tok++; res=OK
#ifdef N_ROTBLIND
     :: ow==0 -> ow=_sr_n; exp=E; tok++; res=OK
#endif
     :: else -> res=BUSY fi }
inline sREN(_sn_o) { fresh();
  if :: ow==_sn_o -> exp=MAX(exp,T); res=ROK
#ifdef N_REVIVE
     :: ow==0 -> ow=_sn_o; exp=T; res=ROK
#endif
     :: else -> res=RNO fi }
inline sEND(_se_o) { fresh();
  if :: ow==_se_o -> ow=0; exp=0 :: else fi; z[_se_o]=1 }
inline slowm(_sm_b) { if :: true -> _sm_b=0 :: fb>0 -> fb--; _sm_b=1 fi }
inline sendEND(_e_o) { if :: true -> en[_e_o]=1 :: fb>0 -> fb--; oe[_e_o]=1; re[_e_o]=1 :: fb>0 -> fb--; en[_e_o]=1; oe[_e_o]=1 fi }
inline nolease(_n_p) { own[_n_p]=0; d[_n_p]=0; base[_n_p]=0; k[_n_p]=0; act[_n_p]=0 }
inline claim(_c_p) {
  assert(!(act[1-_c_p] && d[1-_c_p]>0));                       /* S1 */
  assert(base[_c_p]*B+k[_c_p] > lct); lct=base[_c_p]*B+k[_c_p];   /* S2 */
  act[_c_p]=1; nclaim++ }

proctype Engine(byte p) {
 ende: do
 /* acquire for a local caller */
 :: atomic { own[p]==0 && mk[p]==NOCALL && nown<OWN && nclaim<LIM -> nown++; mn[p]=nown; mo[p]=0; mk[p]=ACQ; mr[p]=T; slowm(ms[p]);
      printf("e%d acquires with o%d\n",p,mn[p]); if :: true :: fb>0 -> fb--; la[mn[p]]=1 fi }
 :: atomic { mk[p]==ACQ -> sACQ(mn[p]); mk[p]=res; mt[p]=tok; printf("  S: ACQ o%d -> %d ow %d exp %d tok %d\n",mn[p],res,ow,exp,tok); if :: ms[p]==0 -> slowm(ms[p]) :: else fi }
 :: atomic { mk[p]==ROT -> sROT(mo[p],mn[p]); mk[p]=res; mt[p]=tok; printf("  S: ROT o%d o%d -> %d ow %d exp %d tok %d\n",mo[p],mn[p],res,ow,exp,tok); if :: ms[p]==0 -> slowm(ms[p]) :: else fi }
 :: atomic { mk[p]==OK -> 
      if :: mr[p]>0 -> own[p]=mn[p]; d[p]=mr[p]; base[p]=mt[p]; k[p]=0
         :: else -> nolease(p); sendEND(mn[p]) fi;
      mk[p]=NOCALL; ms[p]=0; ma[p]=0; mo[p]=0; mn[p]=0; mr[p]=0; mt[p]=0 }
 :: atomic { mk[p]==BUSY -> 
#ifdef N_KEEPOLD
      if :: mo[p]!=0 && d[p]>0 -> own[p]=mo[p]; k[p]=0 :: else -> nolease(p) fi;
#else
      nolease(p);
#endif
      sendEND(mn[p]); mk[p]=NOCALL; ms[p]=0; ma[p]=0; mo[p]=0; mn[p]=0; mr[p]=0; mt[p]=0 }
 /* the call times out: the same script again with the same owners, or give both up */
 :: atomic { (mk[p]==ACQ || mk[p]==ROT || mk[p]==OK || mk[p]==BUSY) && ms[p] ->
      if :: mk[p]==ACQ -> la[mn[p]]=1 :: mk[p]==ROT -> lr[mn[p]]=1; lt[mn[p]]=mo[p] :: else fi;
      if :: mr[p]>0 -> mk[p]=(mo[p]!=0 -> ROT : ACQ); ms[p]=0; ma[p]=0; mt[p]=0; mr[p]=T;
              printf("e%d repeats with o%d o%d\n",p,mo[p],mn[p])
         :: true -> printf("e%d gives up o%d o%d\n",p,mo[p],mn[p]);
#ifdef N_GUESS
              if :: mo[p]!=0 && d[p]>0 -> base[p]++; k[p]=0; own[p]=mn[p]; d[p]=T    /* assumes that the rotation worked */
                 :: else -> if :: mo[p]!=0 -> sendEND(mo[p]) :: else fi; sendEND(mn[p]); nolease(p) fi;
#else
              if :: mo[p]!=0 -> sendEND(mo[p]) :: else fi; sendEND(mn[p]); nolease(p);
#endif
              mk[p]=NOCALL; ms[p]=0; ma[p]=0; mo[p]=0; mn[p]=0; mr[p]=0; mt[p]=0 fi }
 /* callers */
 :: atomic { (own[p]!=0 && !act[p] && !cal[p] && mk[p]==NOCALL && nclaim<LIM
#ifndef N_NOLOST
      && d[p]>0
#endif
      ) -> printf("e%d caller enters, token %d\n",p,base[p]*B+k[p]); claim(p) }
 :: atomic { act[p] && d[p]>0 ->                                   /* the caller is done */
      act[p]=0;
      if :: k[p]+1<B ->
#ifndef N_SAMETOKEN
              k[p]++;
#endif
              printf("e%d hand-off\n",p)
         :: k[p]+1>=B && nown<OWN ->                               /* block end: rotate */
              nown++; mo[p]=own[p]; mn[p]=nown; mk[p]=ROT; mr[p]=T; slowm(ms[p]);
              printf("e%d rotates o%d to o%d\n",p,mo[p],mn[p]);
              if :: true :: fb>0 -> fb--; lr[mn[p]]=1; lt[mn[p]]=mo[p] fi
         :: true -> printf("e%d releases o%d\n",p,own[p]); sendEND(own[p]); nolease(p) fi }
 /* renewal */
 :: atomic { own[p]!=0 && rk[p]==NOCALL && mk[p]==NOCALL && !rn[p] && (d[p]>0) -> rk[p]=REN; ro[p]=own[p]; rr[p]=T; rn[p]=1; slowm(rs[p]) }
 :: atomic { rk[p]==REN -> sREN(ro[p]); rk[p]=res; printf("  S: REN o%d -> %d ow %d exp %d\n",ro[p],res,ow,exp); if :: rs[p]==0 -> slowm(rs[p]) :: else fi }
 :: atomic { rk[p]==ROK || rk[p]==RNO ->
      printf("e%d: reply %d to renewal of o%d, lease o%d\n",p,rk[p],ro[p],own[p]);
#ifdef N_KEYMATCH
      if :: own[p]!=0 ->
#else
      if :: own[p]!=0 && own[p]==ro[p] ->
#endif
           if :: rk[p]==ROK -> if :: d[p]>0 -> d[p]=MAX(d[p],rr[p]) :: else fi
              :: rk[p]==RNO && mk[p]==NOCALL -> sendEND(own[p]); nolease(p)
              :: else fi
         :: else fi;
      rk[p]=NOCALL; ro[p]=0; rr[p]=0; rs[p]=0; ra[p]=0 }
 :: atomic { rk[p]!=NOCALL && rs[p] -> if :: rk[p]==REN -> oe[0]=0 :: else fi; rk[p]=NOCALL; ro[p]=0; rr[p]=0; rs[p]=0; ra[p]=0 }
 od }
/* late copies and ends */
proctype Net(byte o) {
 endn: do
 :: atomic { en[o] -> en[o]=0; sEND(o); printf("  S: END o%d ow %d\n",o,ow) }
 :: atomic { oe[o] -> oe[o]=0; sEND(o); printf("  S: late END o%d ow %d\n",o,ow) }
 :: atomic { la[o] -> la[o]=0; sACQ(o); printf("  S: late ACQ o%d ow %d tok %d\n",o,ow,tok) }
 :: atomic { lr[o] -> lr[o]=0; sROT(lt[o],o); lt[o]=0; printf("  S: late ROT o%d ow %d tok %d\n",o,ow,tok) }
 od }
#define PEND(p) ((mk[p]!=NOCALL && (!ms[p] || ma[p])) || (rk[p]!=NOCALL && (!rs[p] || ra[p])))
proctype Tick() {
 endt: do
 :: atomic { (!PEND(0) && !PEND(1) && !en[1] && !en[2] && !en[3] && !en[4]
#if OWN>4
      && !en[5]
#endif
      ) -> printf("tick\n");
      j=0; do :: j<2 ->
         if :: d[j]>0 -> d[j]--;
#ifndef N_NOLOST
               if :: d[j]==0 && own[j]!=0 && mk[j]!=ROT && mk[j]!=OK && mk[j]!=BUSY -> re[own[j]]=1; nolease(j)
                  :: d[j]==0 && own[j]!=0 && !(mk[j]!=ROT && mk[j]!=OK && mk[j]!=BUSY) -> act[j]=0
                  :: else fi
#endif
            :: else fi;
         if :: mr[j]>0 -> mr[j]-- :: else fi; if :: rr[j]>0 -> rr[j]-- :: else fi;
         if :: mk[j]!=NOCALL -> ma[j]=1 :: else fi; if :: rk[j]!=NOCALL -> ra[j]=1 :: else fi;
         rn[j]=0; j++ :: else -> break od;
      j=1; do :: j<=OWN -> if :: re[j] -> re[j]=0; en[j]=1 :: else fi; j++ :: else -> break od;
      if :: exp>0 -> exp-- :: else fi; j=0; i=0; res=0 }
 od }
init { atomic { run Engine(0); run Engine(1); i=1; do :: i<=OWN -> run Net(i); i++ :: else -> break od; i=0; run Tick() } }
