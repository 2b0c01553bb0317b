// Package records tests the stores of package idempotent against real databases and Redis, over several processes.
package records
