package etcdlock

import (
	"context"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// KeepLoggedIn has a client with a Username log in to etcd 3.4 again when its token is over, as
// it does by itself to later versions. Call it before the client is used, and before New.
//
// A token is over five minutes after its last use, unless --auth-token-ttl says otherwise. The
// client sends it with what is to get it another one, etcd 3.4 refuses that for the token, and the
// client tries again for ever.
func KeepLoggedIn(client *clientv3.Client) {
	if _, ok := client.Auth.(login); !ok {
		client.Auth = login{client.Auth}
	}
}

// login is what a client logs in by.
type login struct{ clientv3.Auth }

// loggingIn is the key of the context of a login.
type loggingIn struct{}

// Authenticate logs in. If the client calls it from inside of itself, the server has refused the
// token that went with the login. It says then that there are no users, which has the client drop
// its token, and log in without one.
func (l login) Authenticate(ctx context.Context, name, password string) (*clientv3.AuthenticateResponse, error) {
	if ctx.Value(loggingIn{}) != nil {
		return nil, rpctypes.ErrAuthNotEnabled
	}
	return l.Auth.Authenticate(context.WithValue(ctx, loggingIn{}, true), name, password)
}

// staysLoggedIn reports whether the client logs in again when its token is over. A server that does
// not say its version is none of those to which it does not.
func (s *session) staysLoggedIn(ctx context.Context) bool {
	if _, kept := s.client.Auth.(login); kept || s.client.Username == "" {
		return true
	}
	st, _, err := retryBy(ctx, s, inline, func(ctx context.Context) (*pb.StatusResponse, error) {
		return pb.NewMaintenanceClient(s.client.ActiveConnection()).Status(ctx, &pb.StatusRequest{}, grpc.WaitForReady(true))
	})
	return err != nil || !strings.HasPrefix(st.Version, "3.4.")
}
