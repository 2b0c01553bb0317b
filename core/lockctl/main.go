package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/redis/go-redis/v9"
)

func main() {
	redis.SetLogger(noLog{}) // go-redis would log to the terminal what an error says as well
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	status := run(ctx, process{
		in: os.Stdin, out: os.Stdout, errs: os.Stderr, getenv: os.Getenv,
		asks:  isatty.IsTerminal(os.Stdin.Fd()),
		draws: isatty.IsTerminal(os.Stdout.Fd()),
	}, os.Args[1:])
	stop()
	os.Exit(status)
}

// process is what the program has from its surroundings.
type process struct {
	in     io.Reader
	out    io.Writer
	errs   io.Writer
	getenv func(string) string
	asks   bool // in is a terminal, at which somebody can answer
	draws  bool // out is one
}

// The exit statuses.
const (
	fine     = 0
	failed   = 1
	misused  = 2
	notFound = 3
)

// run runs the program and returns its exit status.
func run(ctx context.Context, p process, args []string) int {
	secrets := secretsOf(slices.Concat(args, []string{p.getenv("LOCKAROUND_STORE"), p.getenv("LOCKAROUND_NAMESPACE")})...)
	c, o, args, err := parse(args, p.getenv)
	switch {
	case err != nil:
	case c.name == "help":
		err = usage(p.out, args)
	case c.name == "version":
		_, err = fmt.Fprintln(p.out, version())
	case c.name == "completion":
		err = complete(p.out, args[0])
	default:
		err = runAt(ctx, p, c, o, args, secrets)
	}
	if err == nil {
		return fine
	}
	if text := err.Error(); text != "" {
		_, _ = fmt.Fprintln(p.errs, "lockctl: "+secrets.scrub(inert(text))) // nobody is left to tell
	}
	var missing notFoundError
	switch {
	case errors.As(err, new(usageError)):
		return misused
	case errors.As(err, &missing):
		return notFound
	}
	return failed
}

// runAt runs a command at a store.
func runAt(ctx context.Context, p process, c command, o *options, args []string, s secrets) error {
	at, err := open(ctx, p, o, s)
	if err != nil {
		return err
	}
	return errors.Join(c.run(ctx, at, args), at.leave(ctx))
}

// parting is how long an interrupted program tells the store that it leaves.
const parting = 300 * time.Millisecond

// leave ends the connections. Once ctx has ended it does not wait for a store that hangs.
func (s *session) leave(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- s.close() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(parting):
		return nil
	}
}

// version says of which release the program is.
func version() string {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return "lockctl of an unknown version"
	}
	text := "lockctl " + cmp.Or(b.Main.Version, "(devel)")
	for _, m := range b.Deps {
		if m.Path == "github.com/lockaround/lockaround" {
			text += ", lockaround " + m.Version
		}
	}
	return text + ", " + b.GoVersion
}

// notFoundError says that a key is not held, or an item is not there.
type notFoundError string

func (e notFoundError) Error() string { return string(e) }

// noLog drops what client libraries log.
type noLog struct{}

func (noLog) Printf(context.Context, string, ...any) {}

// noZooKeeperLog is noLog for ZooKeeper's.
type noZooKeeperLog struct{}

func (noZooKeeperLog) Printf(string, ...any) {}
