package redislock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

func TestErrorsAreTransientUnlessRepeatingIsUseless(t *testing.T) {
	for _, c := range []struct {
		err       error
		permanent bool
	}{
		{serverError("NOPERM this user has no permissions to run the 'evalsha' command"), true},
		{serverError("WRONGPASS invalid username-password pair or user is disabled."), true},
		{serverError("NOAUTH Authentication required."), true},
		{serverError("ERR Protocol error: unauthenticated multibulk length"), true},
		{serverError("WRONGTYPE Operation against a key holding the wrong kind of value script: 61, on @user_script:1."), true},
		{serverError("ERR unknown command 'EVALSHA', with args beginning with: "), true},
		{serverError("ERR Unknown Redis command called from script script: cc, on @user_script:1."), true},
		{serverError("ERR The user executing the script can't run this command or subcommand script: 20, on @user_script:1."), true},
		{serverError("ERR ACL failure in script: User locks has no permissions to run the 'hset' command script: 20, on @user_script:1."), true},
		{serverError("ERR Error running script (call to f_61): @user_script:1: WRONGTYPE Operation against a key"), true},
		{serverError("ERR Error running script (call to f_61): @user_script:7: @user_script: 7: Unknown Redis command called from Lua script"), true},
		{serverError("The user executing the script can't run this command or subcommand"), true},
		{serverError("ERR user_script:56: attempt to perform arithmetic on a string value script: b1, on @user_script:56."), true},
		{serverError("ERR Error running script (call to f_61): @user_script:56: user_script:56: attempt to perform arithmetic on a string value"), true},
		{serverError("user_script:90: bad argument #1 to 'min' (number expected, got nil)"), true},
		{redis.ErrClosed, true},
		{fmt.Errorf("%w acquire: nonsense", protocol.ErrMalformed), true},
		{&driver.PermanentError{Err: io.EOF}, true},

		{serverError("LOADING Redis is loading the dataset in memory"), false},
		{serverError("BUSY Redis is busy running a script."), false},
		{serverError("READONLY You can't write against a read only replica."), false},
		{serverError("OOM command not allowed when used memory > 'maxmemory'."), false},
		{serverError("ERR Error running script (call to f_61): @user_script:1: OOM command not allowed"), false},
		{serverError("MASTERDOWN Link with MASTER is down"), false},
		{serverError("NOREPLICAS Not enough good replicas to write."), false},
		{serverError("CLUSTERDOWN The cluster is down"), false},
		{serverError("TRYAGAIN Multiple keys request during rehashing of slot"), false},
		{serverError("ERR max number of clients reached"), false},
		{serverError("ERR Error running script (call to f_61): @user_script: 1: Script killed by user with SCRIPT KILL..."), false},
		{io.EOF, false},
		{context.DeadlineExceeded, false},
		{driver.ErrClosed, false},
	} {
		got := classify(c.err)
		if errors.As(got, new(*driver.PermanentError)) != c.permanent {
			t.Errorf("%v: permanent is %v", c.err, !c.permanent)
		}
		if refused := errors.As(got, new(*driver.RefusedError)); refused != (!c.permanent && isReply(c.err)) {
			t.Errorf("%v: an answer that it will not for now is %v", c.err, refused)
		}
		if !errors.Is(got, c.err) && !errors.As(got, new(*driver.PermanentError)) {
			t.Errorf("%v is not found in %v", c.err, got)
		}
	}
	if classify(nil) != nil {
		t.Error("no error became one")
	}
}

func FuzzCommandErrorEnds(f *testing.F) {
	f.Add("ERR Error running script (call to f_61): @user_script:1: @user_script: 1: WRONGTYPE x")
	f.Add("ERR Error running script @user_script:")
	f.Fuzz(func(t *testing.T, text string) {
		if inner := commandError(text); len(inner) > len(text) {
			t.Errorf("%q is longer than %q", inner, text)
		}
	})
}
