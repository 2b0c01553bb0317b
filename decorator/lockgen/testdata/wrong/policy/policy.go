package policy

import "context"

type policies interface {
	//lock:with "a" mode=semaphore
	NoLimit(ctx context.Context) error
	//lock:with "a" limit=3
	LimitAlone(ctx context.Context) error
	//lock:with "a" mode=shared linger=1s
	SharedLinger(ctx context.Context) error
	//lock:with "a" fairness=strict linger=1s
	StrictLinger(ctx context.Context) error
	//lock:with "a" minhold=1s linger=1s
	MinHoldLinger(ctx context.Context) error
	//lock:with "a" wait=-1s
	NegativeWait(ctx context.Context) error
	//lock:with "a" maxwaiting=100
	NobodyWaits(ctx context.Context) error
	//lock:with "a" wait=1s ttl=-1s
	NegativeTTL(ctx context.Context) error
	//lock:with "a" ttl=10000h
	LongTTL(ctx context.Context) error
	//lock:with "a" maxhold=1s minhold=2s
	MinOverMax(ctx context.Context) error
	//lock:with "a" mode=semaphore limit=-1
	NegativeLimit(ctx context.Context) error
	//lock:with "a" mode=semaphore limit=1000000
	HugeLimit(ctx context.Context) error
	//lock:with "a" name=t wait=1s ttl=-1s norenew
	Named(ctx context.Context) error
}
