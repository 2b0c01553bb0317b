module github.com/lockaround/lockaround/core/zklock

go 1.26.0

require (
	github.com/go-zookeeper/zk v1.0.4
	github.com/lockaround/lockaround v0.0.0
	go.uber.org/goleak v1.3.0
)

replace github.com/lockaround/lockaround => ../..
