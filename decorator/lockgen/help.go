package main

const help = `lockgen generates the code for //lock:with directives.

usage: lockgen [-check] [-o name] [package ...]

Packages are as the go command has them: folders, import paths, ./... and so on;
without any it is the one in the working directory. In each that has directives
lockgen writes one file; where there are none any more it removes its own.

  -check    write nothing; exit with 1 if a file is not what lockgen would write
  -o name   of the file, in the package's folder (lock_gen.go)
  -version  print the version
  -h        print this

A directive stands right above a function, a method, or a method of an interface:

  //go:generate go tool lockgen

  type Stock interface {
  	//lock:with "stock:{sku}" wait=2s ttl=10s
  	Deduct(ctx context.Context, sku string, n int) (left int, err error)
  }

That gives a type StockWithLock, whose Deduct holds the lock, and
NewStockWithLock(locks, next) to put it around another Stock. A function
Refill gets a RefillLocked(locks), which returns it with the lock.

In the template, {name} is a parameter and {req.Order.ID} a field of one: strings,
integers and bools. Several directives are several keys, all or none, and so is a
list: {req.Items[].SKU}. Options:

  wait=2s, wait=forever  for a key that is taken; without it, as core.WithDefaults says
  ttl=10s                how long the key stays taken if the process dies
  mode=shared            or exclusive; or semaphore, with limit=3
  name=deduct            in errors and telemetry, instead of the template
  maxhold=1m minhold=5s linger=1s norenew reentrant
  fairness=strict tokens=durable release=sent
  allowempty             lets a call go without the key of an empty list
  when=needsLock         a function or method; where it returns false there is no lock

All but the last are fields of core.Policy. Everything is checked: the exit status is 1
after a fault in the source or on the disk, 2 after a wrong command line.

More: https://pkg.go.dev/github.com/lockaround/lockaround/decorator/lockgen
`
