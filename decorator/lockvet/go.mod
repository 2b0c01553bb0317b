module github.com/lockaround/lockaround/decorator/lockvet

go 1.26.0

require (
	github.com/golangci/plugin-module-register v0.1.2
	github.com/lockaround/lockaround v0.0.0
	golang.org/x/tools v0.52.0
)

require (
	github.com/go-logr/logr v1.4.1 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	go.opentelemetry.io/otel v1.24.0 // indirect
	go.opentelemetry.io/otel/metric v1.24.0 // indirect
	go.opentelemetry.io/otel/trace v1.24.0 // indirect
	golang.org/x/mod v0.42.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
)
