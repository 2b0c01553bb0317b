package protocol_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

var cpuTime = regexp.MustCompile(`used_cpu_(?:user|sys):([0-9.]+)`)

// cpu returns how much time the server has spent on its processor.
func (s *store) cpu() time.Duration {
	s.t.Helper()
	info, _ := s.do("INFO", "cpu").(string)
	var sum time.Duration
	for _, m := range cpuTime.FindAllStringSubmatch(info, -1) {
		seconds, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			s.t.Fatal(err)
		}
		sum += time.Duration(seconds * float64(time.Second))
	}
	if sum == 0 {
		s.t.Fatal("the server does not tell its processor time")
	}
	return sum
}

// steps is a benchmark's sequence of commands, each of which runs on all keys in
// turn, a hundred in a pipeline.
type steps struct {
	*store
	keys int
	took map[string]time.Duration
}

func (s *steps) step(name string, queue func(p redis.Pipeliner, i int)) {
	s.t.Helper()
	ctx := context.Background()
	before := s.cpu()
	for i := 0; i < s.keys; i += 100 {
		_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for j := i; j < min(i+100, s.keys); j++ {
				queue(p, j)
			}
			return nil
		})
		if err != nil {
			s.t.Fatalf("%s: %v", name, err)
		}
	}
	s.took[name] += s.cpu() - before
}

// BenchmarkServer reports the server's processor time for each step in the life of
// a lock, by step; to compare, that of a script
// that does nothing, of a plain SET and DEL, and of a script that deletes a key if it holds
// a value. Every iteration takes a thousand keys through all of them.
func BenchmarkServer(b *testing.B) {
	s := &steps{store: start(b), keys: 1000, took: make(map[string]time.Duration)}
	ctx := context.Background()
	for _, script := range protocol.Scripts() {
		if err := s.rdb.ScriptLoad(ctx, script.Source).Err(); err != nil {
			b.Fatal(err)
		}
	}
	key := func(i int) string { return protocol.Key(fmt.Sprint("bench:", i)) }
	owner := func(generation, i int) driver.Owner {
		var o driver.Owner
		binary.BigEndian.PutUint64(o[:], uint64(i)*0x9e3779b97f4a7c15)
		binary.BigEndian.PutUint64(o[8:], uint64(generation+1)*0xd1342543de82ef95)
		return o
	}
	const channel = "la2:0123456789abcdef0123456789abcdef"
	acquire := func(name string, generation int, create bool) {
		s.step(name, func(p redis.Pipeliner, i int) {
			a := protocol.AcquireArgs{
				Owner: owner(generation, i), Channel: channel, Length: 30 * second, PlaceTTL: 3 * second, Create: create, Wait: true,
			}
			p.EvalSha(ctx, protocol.Acquire.SHA, []string{key(i), protocol.Stream(key(i))}, a.Args()...)
		})
	}
	end := func(name string, generation, next int) {
		s.step(name, func(p redis.Pipeliner, i int) {
			a := protocol.EndArgs{Owner: owner(generation, i)}
			if next > 0 {
				a.Next = &protocol.Next{Owner: owner(next, i), Channel: channel, Length: 30 * second, PlaceTTL: 3 * second}
			}
			p.EvalSha(ctx, protocol.End.SHA, []string{key(i), protocol.Stream(key(i))}, a.Args()...)
		})
	}
	renew := func(name string, generation int) {
		s.step(name, func(p redis.Pipeliner, i int) {
			a := protocol.RenewArgs{Owner: owner(generation, i), Token: 1, TTL: 30 * second}
			p.EvalSha(ctx, protocol.Renew.SHA, []string{key(i), protocol.Stream(key(i))}, a.Args()...)
		})
	}
	load := func(source string) (sha string) {
		sha, err := s.rdb.ScriptLoad(ctx, source).Result()
		if err != nil {
			b.Fatal(err)
		}
		return sha
	}
	empty := load("return 1")
	compareAndDelete := load("if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0")
	b.ResetTimer()
	for range b.N {
		s.step("take", func(p redis.Pipeliner, i int) {
			a := protocol.TakeArgs{Owner: owner(20, i), Channel: channel, Length: 30 * second}.Args()
			p.Do(ctx, "set", key(i), a[0], "nx", "px", a[1])
		})
		s.step("draw", func(p redis.Pipeliner, i int) {
			p.Do(ctx, "xadd", protocol.Stream(key(i)), "maxlen", "~", "1", "*", "", "")
		})
		renew("renew-taken", 20)
		end("end-taken", 20, 0)
		acquire("acquire-new", 1, true)
		end("end-first", 1, 0)
		for g := 2; g < 6; g++ {
			acquire("acquire-again", g, true)
			if g < 5 {
				end("end", g, 0)
			}
		}
		renew("renew", 5)
		acquire("queue", 6, true)
		acquire("refresh", 6, false)
		renew("renew-contended", 5)
		end("rotate-contended", 5, 7)
		end("end-contended", 6, 0)
		end("rotate", 7, 8)
		end("end", 8, 0)
		s.step("acquire-traced", func(p redis.Pipeliner, i int) {
			a := protocol.AcquireArgs{
				Owner: owner(10, i), Channel: channel, Length: 30 * second, PlaceTTL: 3 * second, Create: true, Wait: true,
				Trace: &driver.Trace{TraceID: owner(10, i), SpanID: [8]byte{1}, Flags: 1},
			}
			p.EvalSha(ctx, protocol.Acquire.SHA, []string{key(i), protocol.Stream(key(i))}, a.Args()...)
		})
		end("end-traced", 10, 0)
		s.step("empty", func(p redis.Pipeliner, i int) { p.EvalSha(ctx, empty, []string{key(i)}) })
		s.do("FLUSHALL")
		s.step("set-nx-px", func(p redis.Pipeliner, i int) { p.SetNX(ctx, key(i), "0123456789abcdef012345", 30*second) })
		s.step("get-del", func(p redis.Pipeliner, i int) {
			p.EvalSha(ctx, compareAndDelete, []string{key(i)}, "0123456789abcdef012345")
		})
		s.step("set-nx-px", func(p redis.Pipeliner, i int) { p.SetNX(ctx, key(i), "0123456789abcdef012345", 30*second) })
		s.step("del", func(p redis.Pipeliner, i int) { p.Del(ctx, key(i)) })
	}
	b.StopTimer()
	b.ReportMetric(0, "ns/op")
	times := map[string]int{"acquire-again": 4, "end": 4, "set-nx-px": 2}
	for name, took := range s.took {
		b.ReportMetric(float64(took.Nanoseconds())/float64(b.N*s.keys*max(1, times[name])), name+"-ns")
	}
}
