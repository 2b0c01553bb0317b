package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
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

// command is one of the program's commands.
type command struct {
	name  string
	args  []string // what they are called
	short string
	flags []string // besides those of all commands
	run   func(context.Context, *session, []string) error
}

var queueFlags = []string{"queue-prefix", "shards", "keep", "keep-count"}

// commands are all of them, in the order of the help.
func commands() []command {
	return []command{
		{"ls", nil, "list the keys that are held or waited for", []string{"prefix"}, list},
		{"watch", nil, "list them again and again, until it is interrupted", []string{"prefix", "interval", "count"}, watch},
		{"inspect", []string{"KEY"}, "say who holds a key and how many wait", nil, inspect},
		{"release", []string{"KEY"}, "take a key from its holder; asks first", []string{"yes"}, release},
		{"doctor", nil, "check how the store is set up", []string{"user"}, doctor},
		{"queue ls", []string{"QUEUE"}, "count what there is in a serial queue, and list its parked keys", queueFlags, queueList},
		{"queue status", []string{"QUEUE", "ITEM"}, "say what has become of an item", queueFlags, queueStatus},
		{"queue resume", []string{"QUEUE", "ITEM"}, "leave a parked item dead, and go on with the next one; asks first", append(queueFlags, "yes"), queueResume},
		{"queue drop", []string{"QUEUE", "ITEM"}, "remove a parked item, and go on with the next one; asks first", append(queueFlags, "yes"), queueDrop},
		{"queue repeat", []string{"QUEUE", "ITEM"}, "run a parked item again; asks first", append(queueFlags, "yes"), queueRepeat},
		{"completion", []string{"SHELL"}, "print the completion for bash, zsh or fish", nil, nil},
		{"version", nil, "print the version", nil, nil},
		{"help", []string{"[COMMAND]"}, "print this, or what a command takes", nil, nil},
	}
}

// options are what the flags say.
type options struct {
	store     string
	namespace string
	timeout   time.Duration
	json      bool

	prefix   string
	yes      bool
	interval time.Duration
	count    int
	user     string

	queuePrefix string
	shards      int
	keepFor     time.Duration
	keepCount   int
}

// commonFlags are those of all commands.
var commonFlags = []string{"store", "namespace", "timeout", "json"}

// newFlags returns the flags of all commands.
func newFlags(getenv func(string) string) (*flag.FlagSet, *options) {
	o := &options{store: getenv("LOCKAROUND_STORE")}
	f := flag.NewFlagSet("lockctl", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Func("store", "the `URL` of the store; the default is $LOCKAROUND_STORE, which other users of the machine do not see", func(url string) error {
		o.store = url
		return nil
	})
	f.StringVar(&o.namespace, "namespace", getenv("LOCKAROUND_NAMESPACE"), "the namespace of the keys, as in core.WithNamespace; the default is $LOCKAROUND_NAMESPACE")
	f.DurationVar(&o.timeout, "timeout", 3*time.Second, "how long the store may take for one answer")
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.StringVar(&o.prefix, "prefix", "", "keys that begin with this alone")
	f.BoolVar(&o.yes, "yes", false, "do not ask")
	f.DurationVar(&o.interval, "interval", 2*time.Second, "the time between two lists")
	f.IntVar(&o.count, "count", 0, "how many lists; 0 is no end")
	f.StringVar(&o.user, "user", "", "the Redis user whose rights are checked; the default is the one of the URL")
	f.StringVar(&o.queuePrefix, "queue-prefix", "", "the prefix that the service gives to redisqueue.New")
	f.IntVar(&o.shards, "shards", 1, "what the service gives to redisqueue.WithShards")
	f.DurationVar(&o.keepFor, "keep", 24*time.Hour, "the service's serial.Policy.KeepFor")
	f.IntVar(&o.keepCount, "keep-count", 1000, "the service's serial.Policy.KeepCount")
	return f, o
}

// usageError is a command line that is wrong.
type usageError string

func (e usageError) Error() string { return string(e) }

func misuse(format string, a ...any) error { return usageError(fmt.Sprintf(format, a...)) }

// parse reads the command line. Flags may stand anywhere; what follows -- is an argument. The
// options are there also with an error.
func parse(args []string, getenv func(string) string) (command, *options, []string, error) {
	flags, o := newFlags(getenv)
	var words []string
	for len(args) > 0 {
		if err := flags.Parse(args); err == flag.ErrHelp {
			return command{name: "help"}, o, words, nil
		} else if name, unknown := strings.CutPrefix(fmt.Sprint(err), "flag provided but not defined: "); unknown {
			return command{}, o, nil, misuse("there is no flag %s; -- ends the flags: put it before a key that begins with a -, as in lockctl inspect -- %s", quote(name), quote(name))
		} else if err != nil {
			return command{}, o, nil, usageError(err.Error())
		}
		rest := flags.Args()
		if read := len(args) - len(rest); read > 0 && args[read-1] == "--" {
			words = append(words, rest...)
			break
		}
		if len(rest) == 0 {
			break
		}
		words, args = append(words, rest[0]), rest[1:]
	}
	c, words, err := find(words)
	if err != nil {
		return c, o, nil, err
	}
	flags.Visit(func(f *flag.Flag) {
		if !slices.Contains(commonFlags, f.Name) && !slices.Contains(c.flags, f.Name) {
			err = misuse("%s has no flag -%s; lockctl help says which it has", c.name, f.Name)
		}
	})
	switch {
	case err != nil, c.name == "help":
	case len(c.args) == 0 && len(words) > 0:
		err = misuse("%s takes flags alone, and no %s; lockctl help %s has them", c.name, quote(words[0]), c.name)
	case len(words) != len(c.args):
		err = misuse("use it as lockctl %s, with one word for each; quote a key for your shell", strings.Join(append([]string{c.name}, c.args...), " "))
	case o.timeout < time.Millisecond:
		err = misuse("-timeout is %v; use a millisecond or more", o.timeout)
	case o.interval < 100*time.Millisecond:
		err = misuse("-interval is %v; use 100ms or more", o.interval)
	}
	return c, o, words, err
}

// find returns the command that the words begin with, and the words behind it.
func find(words []string) (command, []string, error) {
	for _, c := range commands() {
		name := strings.Fields(c.name)
		if len(words) >= len(name) && slices.Equal(words[:len(name)], name) {
			return c, words[len(name):], nil
		}
	}
	if len(words) == 0 {
		return command{}, nil, misuse("which command? lockctl help lists them")
	}
	if strings.Contains(words[0], "://") {
		return command{}, nil, misuse("the URL of the store goes behind -store, or into LOCKAROUND_STORE")
	}
	return command{}, nil, misuse("there is no command %s, or not with these words; lockctl help lists those that there are", quote(words[0]))
}

// usage prints the help: of all commands, or of those whose names begin with the words.
func usage(w io.Writer, words []string) error {
	var of []command
	for _, c := range commands() {
		if name := strings.Fields(c.name); len(words) <= len(name) && slices.Equal(words, name[:len(words)]) {
			of = append(of, c)
		}
	}
	if len(of) == 0 {
		return misuse("there is no command %s; lockctl help lists those that there are", quote(strings.Join(words, " ")))
	}
	var b strings.Builder
	if len(words) == 0 {
		b.WriteString("Lockctl looks at the locks in a store, and at the store.\n\n\tlockctl [flags] command [flags] [--] [arguments]\n\n" +
			"What follows -- is an argument, though it begins with a -. Commands:\n\n")
	}
	var rows [][]string
	for _, c := range of {
		rows = append(rows, []string{"  " + strings.Join(append([]string{c.name}, c.args...), " "), c.short})
	}
	table(&b, rows)
	b.WriteString(either(words, "\nIts flags:\n\n", "\nFlags of all commands, and those of some:\n\n"))
	rows = nil
	flags, _ := newFlags(func(string) string { return "" })
	flags.VisitAll(func(f *flag.Flag) {
		rows = append(rows, flagRow(f, of)...)
	})
	table(&b, rows)
	if len(words) == 0 {
		b.WriteString("\nURLs of stores; the ones with rediss and etcds go by TLS:\n\n")
		for _, example := range urlExamples {
			b.WriteString("  " + example + "\n")
		}
		b.WriteString("\nOptions behind the ? of a URL:\n\n" + urlOptions)
		b.WriteString("\nThe exit status is 0 if it was found or done, 1 if it failed, 2 if the command line is\nwrong, 3 if the key is not held or the item not there.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// flagRow describes a flag, in a row, if one of the commands has it.
func flagRow(f *flag.Flag, commands []command) [][]string {
	var of []string
	for _, c := range commands {
		if slices.Contains(c.flags, f.Name) {
			of = append(of, c.name)
		}
	}
	if slices.Contains(commonFlags, f.Name) {
		of = []string{"all"}
	}
	if len(of) == 0 {
		return nil
	}
	kind, what := flag.UnquoteUsage(f)
	if f.DefValue != "" && f.DefValue != "0" && f.DefValue != "false" {
		what += "; the default is " + f.DefValue
	}
	return [][]string{{"  -" + strings.TrimSpace(f.Name+" "+kind), what + " (" + strings.Join(of, ", ") + ")"}}
}

// complete prints the completion of a shell, from the table of commands.
func complete(w io.Writer, shell string) error {
	var words, second, flags []string
	short := make(map[string]string)
	for _, c := range commands() {
		first, rest, nested := strings.Cut(c.name, " ")
		if !slices.Contains(words, first) {
			words = append(words, first)
			short[first] = c.short
		}
		if nested {
			second = append(second, rest)
			short[first] = "serial queues"
		}
	}
	all, _ := newFlags(func(string) string { return "" })
	all.VisitAll(func(f *flag.Flag) { flags = append(flags, "-"+f.Name) })
	var err error
	switch shell {
	case "bash":
		_, err = fmt.Fprintf(w, `_lockctl() {
	local cur=${COMP_WORDS[COMP_CWORD]} words=%q
	case " ${COMP_WORDS[*]:1:COMP_CWORD-1} " in
	*" queue "*) words=%q ;;
	*" completion "*) words="bash zsh fish" ;;
	esac
	[[ $cur == -* ]] && words=%q
	COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -F _lockctl lockctl
`, strings.Join(words, " "), strings.Join(second, " "), strings.Join(flags, " "))
	case "zsh":
		_, err = fmt.Fprintf(w, `#compdef lockctl
_lockctl() {
	if [[ $PREFIX == -* ]]; then compadd -- %s
	elif [[ ${words[(I)queue]} -gt 0 ]]; then compadd -- %s
	elif [[ ${words[(I)completion]} -gt 0 ]]; then compadd -- bash zsh fish
	else compadd -- %s
	fi
}
compdef _lockctl lockctl
`, strings.Join(flags, " "), strings.Join(second, " "), strings.Join(words, " "))
	case "fish":
		var b strings.Builder
		b.WriteString("complete -c lockctl -f\n")
		for _, word := range words {
			fmt.Fprintf(&b, "complete -c lockctl -n __fish_use_subcommand -a %s -d '%s'\n", word, short[word])
		}
		fmt.Fprintf(&b, "complete -c lockctl -n '__fish_seen_subcommand_from queue' -a '%s'\n", strings.Join(second, " "))
		b.WriteString("complete -c lockctl -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'\n")
		all.VisitAll(func(f *flag.Flag) {
			_, what := flag.UnquoteUsage(f)
			fmt.Fprintf(&b, "complete -c lockctl -o %s -d '%s'\n", f.Name, strings.ReplaceAll(what, "'", `\'`))
		})
		_, err = io.WriteString(w, b.String())
	default:
		return misuse("there is a completion for bash, zsh and fish")
	}
	return err
}
