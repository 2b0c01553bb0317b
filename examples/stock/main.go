// Command stock sells 100 units to 1,000 buyers who all come at once, first
// without a lock and then with one, and shows what that does to the stock.
//
//	go run ./examples/stock                                    # nothing installed
//	go run ./examples/stock -redis 127.0.0.1:6379 -processes 4 # several replicas
//	go run ./examples/stock -serve                             # and then for curl, grpcurl and a browser
//
// A third of the buyers come over HTTP, through a gin route that middleware.Lock
// guards, a third over gRPC, through a method that a rule of package interceptor
// guards, and the others call a function that decorator.WithLock wraps. All lock
// the same key. The exit status is 1 if a run with locks sold anything but
// exactly what there was. Package sale has all of that. With -serve the shop stays open, with
// buyers in it, and prints where the page of its locks is.
//
// The value of -redis says where lock and stock are kept:
//
//	-redis 127.0.0.1:6379                     # one server
//	-redis 10.0.0.1:6379,10.0.0.2:6379        # a Cluster, by some of its nodes
//	-redis 10.0.0.1:6379,                     # a Cluster, by one of its nodes
//	-redis 10.0.0.1:26379 -sentinel mymaster  # the master of that name, by its Sentinels
//
// The locks alone may be kept elsewhere, in one of the stores that -help lists:
//
//	-store redlock -at 10.0.1.1:6379,10.0.2.1:6379,10.0.3.1:6379
//
// Command examples/extra/stores is this program with more stores.
package main

import (
	"github.com/lockaround/lockaround/examples/stock/sale"
)

func main() { sale.Main(sale.Memory, sale.Redis, sale.Redlock) }
