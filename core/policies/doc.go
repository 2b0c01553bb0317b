// Package policies reads from a file what an operator changes about the policies of a
// program, without a new build: for [core.WithOverrides].
//
//	# locks.yaml
//	policies:
//	  "stock:{path.sku}": # the policy's Name, or its template if it has none
//	    wait: 2s
//	    ttl: 10s
//	  rebuild:
//	    mode: semaphore
//	    limit: 3
//	    max_hold: 1m30s
//
//	overrides, err := policies.Load("locks.yaml")
//	if err != nil { … }
//	locks, err := core.New(driver, core.WithOverrides(overrides))
//	… // guards, tables and routes
//	err = locks.CheckOverrides() // names that no policy has
//	go policies.Watch(ctx, locks, "locks.yaml", 0) // takes a changed file after 20 s at most
//
// [Watch] needs an engine with core.WithOverrides, if only of an empty map. It checks the file against every Guard,
// and so against routes, methods and tables. A policy with a literal key, of [core.Engine.Do]
// or Acquire, is checked at its next call.
//
// What is not stated stays as the program says. The fields mean what those of
// [core.Policy] mean:
//
//	wait      0s or more, or forever; 0s tries once
//	ttl       more than 0s, at most 8760h; drivers have a least TTL, which core.New checks
//	max_hold  0s or more; 0s is no bound
//	mode      exclusive, shared or semaphore
//	limit     1 to 65536: holders of a semaphore; 0 beside another mode
//	release   confirmed or sent
//
// A mode that lets more hold together than the program's, as shared in place of exclusive,
// takes away what the program may rely on. That is for an operator who knows the code, and
// the engine says so in the log.
//
// Times are written as for [time.ParseDuration], always with a unit: 2s, 500ms, 1m30s.
// Policies of one name, wherever they are in the program, are changed alike. Whether
// the whole of a policy is possible is checked by core, where it is compiled.
//
// # What is refused
//
// The file is one YAML document in UTF-8 of up to 1 MiB. JSON is YAML, and goes by the
// same rules, but for one thing: a character beyond U+FFFF is not written as two \u
// escapes. A name or field that comes twice is an error and not a choice of one, and
// so is a field that nobody knows. Anchors, aliases, merge keys and tags are refused, so
// that every override says in its own lines what it does.
//
// # Files
//
// In the order in which a file passes them:
//
//	load.go      Load and Parse: how YAML is read, and what is wrong with it
//	override.go  the fields of a policy, and their values
//	watch.go     Watch: a file that changes
package policies
