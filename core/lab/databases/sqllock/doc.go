// Package sqllock tests core/sqllock on real databases: PostgreSQL and MariaDB. It is here so that
// their drivers are none of lockaround's dependencies.
package sqllock
