module github.com/lockaround/lockaround/core/zklock/queues

go 1.26.0

require (
	github.com/go-zookeeper/zk v1.0.4
	github.com/lockaround/lockaround v0.0.0
	github.com/lockaround/lockaround/core/zklock v0.0.0
	github.com/lockaround/lockaround/decorator/queue/zkqueue v0.0.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/go-logr/logr v1.4.1 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	go.opentelemetry.io/otel v1.24.0 // indirect
	go.opentelemetry.io/otel/metric v1.24.0 // indirect
	go.opentelemetry.io/otel/trace v1.24.0 // indirect
)

replace github.com/lockaround/lockaround => ../../..

replace github.com/lockaround/lockaround/core/zklock => ..

replace github.com/lockaround/lockaround/decorator/queue/zkqueue => ../../../decorator/queue/zkqueue
