// Package queues tests serial queues in PostgreSQL and MariaDB.
package queues
