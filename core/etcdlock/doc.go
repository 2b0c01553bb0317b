// Package etcdlock keeps locks in etcd (3.4 and later).
package etcdlock
