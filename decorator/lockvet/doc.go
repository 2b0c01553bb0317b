// Lockvet finds wrong uses of distributed locks in Go code, before it runs:
//
//	go mod init -modfile=tools.mod example.com/shop/tools # once, beside go.mod
//	go get -modfile=tools.mod -tool github.com/lockaround/lockaround/decorator/lockvet@latest
//	go vet -vettool=$(go tool -modfile=tools.mod -n lockvet) ./...
//
// It has six checks. Package
// [github.com/lockaround/lockaround/decorator/lockvet/analyzers] has the wrong code of each,
// what happens to users, and the right code.
//
//	lockbypass   a function with a //lock:with directive is called without the lock
//	lockctx      a call under a lock does not hear that the lease is lost
//	lockescape   a goroutine that is started under a lock goes on after the release
//	locktx       a transaction is begun before the lock and committed after the release
//	lockresult   the outcome of an acquisition is dropped, or a path does not release
//	lockkey      a key template does not fit its type or route, or a key is made of raw values
//
// All but lockbypass and lockkey know redsync, bsm/redislock and etcd's concurrency package, too,
// and so are of use to a program that does not import lockaround.
//
// # Flags
//
// -lockctx runs that check alone, and -lockctx=false all others. -json prints JSON. -fix, with
// which go vet changes the files, passes the right context where that is certain to mean the
// same call; no other report has a fix. What a check looks for is printed by
//
//	go tool -modfile=tools.mod lockvet help lockctx
//
// # What is not looked at
//
// Generated files and those of tests: a test uses locks wrongly on purpose, and its process and
// store end with it. A file is of a test if its name says so or if it imports testing.
//
// The checks look at one function at a time, and not at one that acquires a lock in more than 100
// places. A lock in a field, which one method acquires and another one releases, is left alone, as is
// one that is passed on. They do not follow values into functions that are called. README.md has what they said of public repositories, and which
// reports were wrong.
//
// # golangci-lint
//
// Package [github.com/lockaround/lockaround/decorator/lockvet/plugin] is a module plugin of
// golangci-lint.
package main
