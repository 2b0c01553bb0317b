// Lockctl is for operators: it says who holds which lock and who waits, takes a lock from its
// holder, lets parked serial queues go on, and checks how a store is set up.
//
//	go run github.com/lockaround/lockaround/core/lockctl -store redis://127.0.0.1:6379 -namespace shop ls
//
// README.md in this folder has what each command prints, and the fields of -json. Help is
// printed by lockctl help.
//
// It goes through the same engine and drivers as a service, so that it sees what a service sees.
// It needs the rights of a service, and to list keys in Redis +scan as well; doctor says which of
// its questions the store did not permit.
//
// # Output
//
// Tables are for people. With -json each command prints objects for programs, whose fields stay.
// Keys are printed as they are if they consist of printable characters without spaces, and
// otherwise quoted as in Go; as arguments both forms are understood. So neither a key nor an
// identity can send an escape sequence to a terminal. A password in the URL of the store is never
// printed.
//
// The exit status is 0 if what was asked for was found or done, 1 if it failed, 2 if the command
// line is wrong, and 3 if the key is not held, the item is not there or not parked.
//
// # The command line
//
// It is read by package flag: there are few commands, whose table also gives help and the
// completion of shells, and no library would make them fewer.
//
// # Files
//
// In the order in which a command passes them:
//
//	main.go               the table of commands, the command line, help and completion
//	store.go              the URL of a store, and the session that a command goes through
//	announced.go          how much a server of Redis may announce
//	keys.go               ls, inspect, release and watch
//	queue.go              the commands of parked queues
//	text.go               tables, quoting, and what hides passwords
//	doctor.go             doctor: the findings, and how they are printed
//	doctor_redis.go       what it asks servers of Redis
//	doctor_redis_keys.go  what it asks of the rights, the keys and the channels there
//	doctor_quorum.go      what it asks ZooKeeper and etcd
//	doctor_sql.go         what it asks databases
package main
