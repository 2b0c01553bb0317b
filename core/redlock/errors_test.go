package redlock

import (
	"errors"
	"testing"

	"github.com/lockaround/lockaround/core/driver"
)

// refusal is an error reply of a server.
type refusal string

func (r refusal) Error() string { return string(r) }

func (refusal) RedisError() {}

func TestScriptThatFailsEachTimeIsAPermanentError(t *testing.T) {
	for _, c := range []struct {
		server string
		reply  refusal
	}{
		{"Redis 7.0", "ERR The user executing the script can't run this command or subcommand script: 20, on @user_script:1."},
		{"Redis 7.2, Valkey", "ERR ACL failure in script: User locks has no permissions to run the 'hset' command script: 20, on @user_script:1."},
		{"Redis 6.2", "ERR Error running script (call to f_61): @user_script:9: user_script:9: attempt to compare number with nil"},
		{"Redis 7.0, a damaged hash", "ERR user_script:56: attempt to perform arithmetic on a string value script: b1, on @user_script:56."},
	} {
		if err := classify(c.reply); !errors.As(err, new(*driver.PermanentError)) {
			t.Errorf("%s: %v is not permanent", c.server, err)
		}
	}
}
