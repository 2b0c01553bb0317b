// Command stores is examples/stock with its locks in any store:
//
//	go run ./examples/extra/stores -store redlock -at 10.0.1.1:6379,10.0.2.1:6379,10.0.3.1:6379
//	go run ./examples/extra/stores -store zookeeper -at 10.0.0.1:2181,10.0.0.2:2181
//	go run ./examples/extra/stores -store etcd -at 10.0.0.1:2379,10.0.0.2:2379
//	go run ./examples/extra/stores -store postgres -at postgres://shop:secret@10.0.0.1/shop
//	go run ./examples/extra/stores -store mysql -at 'shop:secret@tcp(10.0.0.1:3306)/shop'
//
// With -processes 4 the buyers come from several processes, which share the locks.
package main

import "github.com/lockaround/lockaround/examples/stock/sale"

func main() {
	sale.Main(sale.Memory, sale.Redis, sale.Redlock, zookeeper, etcd, postgres, mysql)
}
