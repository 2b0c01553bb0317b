// Package clients puts locks around interfaces that others wrote, as a program would that
// uses lockgen: large ones, of clients and of servers.
package clients

import (
	"context"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/health/grpc_health_v1"
)

//go:generate go tool lockgen

// Redis is a client of a Redis of any kind, whose transactions on one key come one after
// the other.
type Redis interface {
	redis.UniversalClient

	//lock:with "transaction" wait=2s
	Watch(ctx context.Context, fn func(*redis.Tx) error, keys ...string) error
	//lock:with "process" mode=shared
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Commands are those of Redis.
type Commands interface {
	redis.Cmdable

	//lock:with "pipeline" wait=2s
	TxPipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error)
}

// KV is etcd's store.
type KV interface {
	clientv3.KV

	//lock:with "kv:{key}" wait=2s
	Put(ctx context.Context, key, val string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error)
	//lock:with "kv:{key}" mode=shared wait=2s
	Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error)
}

// Lease is etcd's leases.
type Lease interface {
	clientv3.Lease

	//lock:with "lease:{id}"
	Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error)
}

// Auth is etcd's users and roles.
type Auth interface {
	clientv3.Auth

	//lock:with "role:{role}"
	//lock:with "range:{key}/{rangeEnd}" wait=1m
	RoleGrantPermission(ctx context.Context, role, key, rangeEnd string, permType clientv3.PermissionType) (*clientv3.AuthRoleGrantPermissionResponse, error)
	//lock:with "user:{options.NoPassword}/{name}"
	UserAddWithOptions(ctx context.Context, name string, password string, options *clientv3.UserAddOptions) (*clientv3.AuthUserAddResponse, error)
}

// Maintenance is etcd's upkeep.
type Maintenance interface {
	clientv3.Maintenance

	// Defragment runs on one member at a time.
	//
	//lock:with "defragment" wait=forever
	Defragment(ctx context.Context, endpoint string) (*clientv3.DefragmentResponse, error)
}

// Cluster is etcd's members.
type Cluster interface {
	clientv3.Cluster

	//lock:with "member:{id}"
	MemberRemove(ctx context.Context, id uint64) (*clientv3.MemberRemoveResponse, error)
}

// Watcher is etcd's watches.
type Watcher interface {
	clientv3.Watcher

	//lock:with "progress" mode=semaphore limit=2
	RequestProgress(ctx context.Context) error
}

// Health is a gRPC service.
type Health interface {
	grpc_health_v1.HealthServer

	//lock:with "health:{request.Service}"
	Check(ctx context.Context, request *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error)
}
