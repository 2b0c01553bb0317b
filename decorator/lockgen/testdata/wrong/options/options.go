package options

import "context"

// all has every fault that an option can have; it is one directive, so all are reported.
//
//lock:with "a" wiat=2s retries=3 wait=2 wait=1s ttl=soon ttl mode=shard limit=many norenew=true fairness=fast tokens=strong maxhold= name="" linger=1h"
func all(ctx context.Context) error { return nil }

//lock:with "a" name="unterminated
func quoted(ctx context.Context) error { return nil }

//lock:with "a" mode=
func noMode(ctx context.Context) error { return nil }

//lock:with "a" wait="2 s"
func blank(ctx context.Context) error { return nil }

//lock:with "a" =2s
func nameless(ctx context.Context) error { return nil }

//lock:with "a" wait = 2s ttl= 3s mode =shared name = "a=b" limit= 2
func spaced(ctx context.Context) error { return nil }

//lock:with "a" wait= ttl=2s mode = norenew
func forgotten(ctx context.Context) error { return nil }

//lock:with "a" wait=1s
//lock:with "b" ttl=2s
func twice(ctx context.Context) error { return nil }

//lock:with "a"
//lock:with "a"
func same(ctx context.Context) error { return nil }
