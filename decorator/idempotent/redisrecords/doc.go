// Package redisrecords keeps the records of package idempotent in Redis, for all processes that use it.
//
//	records, err := redisrecords.New(rdb, "shop:once:")
//	…
//	pay := idempotent.Must(locks, core.Policy{Key: "pay:{Account}:{RequestID}"}, records, charge,
//		idempotent.Policy{Died: idempotent.Refuse})
//
// It needs Redis 6.2 or later, or Valkey, on one server, with replicas or Sentinels, or in a Cluster. Each
// method is one script, and one round trip.
//
// # What is in Redis
//
// Each record is one string, under the prefix and its key, with a header of 83 bytes before the answer. It
// expires by itself. A string that something else has written is left alone and is an error.
//
// A user of an ACL needs, if the prefix is shop:once:, "~shop:once:*" and the commands EVALSHA, EVAL, GET,
// GETRANGE, SET, DEL and TIME.
//
// # What it cannot know
//
// A server that evicts a record, restarts without it, or fails over to a replica that lags, lets its
// call run again: use maxmemory-policy noeviction, and a persistence that you trust with it. Only the server's
// clock counts: set forward, records end early, and for two seconds a call may run beside one
// that has only just begun; set back, they last that much longer.
package redisrecords
