// Package fence tests core/fence and transactions under a lock on real databases: PostgreSQL and
// MariaDB. It is here so that their drivers are none of lockaround's dependencies.
package fence
