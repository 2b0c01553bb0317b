package redisqueue

import (
	_ "embed" // the scripts
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockaround/lockaround/decorator/internal/redispush"
	"github.com/lockaround/lockaround/decorator/queue"
)

var (
	//go:embed clock.lua
	clockSource string
	//go:embed key.lua
	keySource string
	//go:embed each.lua
	eachSource string
	//go:embed append.lua
	appendSource string
	//go:embed begin.lua
	beginSource string
	//go:embed end.lua
	endSource string
	//go:embed claim.lua
	claimSource string
	//go:embed status.lua
	statusSource string
	//go:embed resume.lua
	resumeSource string
	//go:embed enter.lua
	enterSource string
	//go:embed stats.lua
	statsSource string

	appendScript = redispush.Script(clockSource + keySource + appendSource + eachSource)
	beginScript  = redispush.Script(clockSource + keySource + beginSource + eachSource)
	endScript    = redispush.Script(clockSource + keySource + endSource + eachSource)
	claimScript  = redispush.Script(clockSource + claimSource)
	statusScript = redispush.Script(clockSource + keySource + statusSource + eachSource)
	resumeScript = redispush.Script(clockSource + keySource + resumeSource + eachSource)
	enterScript  = redispush.Script(clockSource + keySource + enterSource + eachSource)
	statsScript  = redispush.Script(clockSource + statsSource)
)

var errReply = errors.New("the server's reply is none of the script's")

// micros is a duration in whole microseconds, not less than it.
func micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// digits writes a token as the scripts compare it.
func digits(token int64) string { return fmt.Sprintf("%019d", token) }

// outcomes and deaths are what the scripts call them.
var (
	outcomes = map[queue.Outcome]string{queue.Done: "done", queue.Retry: "retry", queue.Dead: "dead"}
	deaths   = map[queue.OnDead]string{queue.Skip: "skip", queue.Hold: "hold", queue.Cascade: "cascade"}
	resumes  = map[queue.Resumption]string{queue.GoOn: "go on", queue.Drop: "drop", queue.Repeat: "repeat"}
)

// reply reads an answer of integers and strings. It fails with what is missing or of another type.
type reply struct {
	left []any
	err  error
}

func (r *reply) next() any {
	if len(r.left) == 0 {
		r.err = errReply
		return nil
	}
	v := r.left[0]
	r.left = r.left[1:]
	return v
}

func (r *reply) int() int64 {
	n, ok := r.next().(int64)
	if !ok {
		r.err = errReply
	}
	return n
}

func (r *reply) text() string {
	s, ok := r.next().(string)
	if !ok {
		r.err = errReply
	}
	return s
}

// failure says what was being done when Redis failed.
func failure(doing string, err error) error {
	if strings.Contains(err.Error(), "DAMAGED ") {
		err = queue.ErrDamaged
	}
	return fmt.Errorf("redisqueue: %s: %w", doing, err)
}
