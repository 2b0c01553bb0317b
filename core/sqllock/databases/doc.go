// Package databases tests sqllock on real databases: PostgreSQL and MariaDB. It is a module
// of its own, so that their drivers are none of lockaround's dependencies.
package databases
