package main

import (
	"bytes"
	"flag"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzQuoting(f *testing.F) {
	for _, s := range []string{"", "stock:7", `"a"`, "a b", "\x1b[31m", "\xff", "\u202e", "ä", "\\", "a\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q := quote(s)
		if back, err := unquote(q); err != nil || back != s {
			t.Errorf("%q is printed as %s, which is read as %q, %v", s, q, back, err)
		}
		if strings.IndexFunc(q, func(r rune) bool { return r != ' ' && unprintable(r) }) >= 0 || !utf8.ValidString(q) {
			t.Errorf("%q is printed as %q", s, q)
		}
		i := inert(s)
		if strings.IndexFunc(i, func(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }) >= 0 {
			t.Errorf("%q becomes %q", s, i)
		}
	})
}

func FuzzURLs(f *testing.F) {
	for _, s := range urlExamples {
		f.Add(s, "geheim")
	}
	for _, s := range []string{"", "redis", "redis://", "redis://:p@h", "redis://u:p/q@h", "redis://u:p@h:x", "redis+cluster://[::1],[::2]:3", "x://y", "redis://a@b@c", "redis://h?password=p", "mysql://%"} {
		f.Add(s, "ge/h@im")
	}
	f.Fuzz(func(t *testing.T, url, password string) {
		l, err := parseURL(url)
		if err == nil && (len(l.hosts) == 0 || strings.IndexFunc(l.String(), func(r rune) bool { return !strconv.IsPrint(r) }) >= 0) {
			t.Errorf("%q has the hosts %q, and is shown as %q", url, l.hosts, l)
		}
		if len(password) < 4 || strings.Contains("redis+sentinel://user@host:6379/0 xxxxx", password) {
			return
		}
		// Whatever follows the password, it is in no text about the URL.
		url = "redis://user:" + password + "@" + url
		l, err = parseURL(url)
		text := ""
		if err != nil {
			text = err.Error()
		} else if !strings.Contains(l.hosts[0]+l.path, password) {
			text = l.String()
		}
		if strings.Contains(text, password) && !strings.Contains(errorTexts, password) {
			t.Errorf("%q: %s", url, text)
		}
		if scrubbed := secretsOf("redis://user:" + password + "@host").scrub("the password is " + password); strings.Contains(scrubbed, password) {
			t.Errorf("%q is not taken out of %q", password, scrubbed)
		}
	})
}

// errorTexts have words that a password may consist of.
const errorTexts = "which store? give -store or LOCKAROUND_STORE a URL; lockctl help has one of each kind the store is no URL, such as redis://user:password@host:6379/0" +
	" the scheme of the store's URL is none of those that lockctl help shows the user or the password of the store's URL has a % that two hexadecimal digits should follow; write a % as %25" +
	" a host of the store's URL is not host or host:port; write a /, ? or @ of a password as %2F, %3F or %40 the path of the store's URL is wrong; write a / of a password as %2F" +
	" what follows the ? of the store's URL is not name=value&name=value a store of the scheme redis has one host; lockctl help has the schemes for several"

func TestPasswordsAreTakenOutOfTexts(t *testing.T) {
	for url, text := range map[string]string{
		"redis://u:geheim@h":                            "geheim",
		"redis://u:ge%2Fheim@h":                         "ge/heim ge%2Fheim",
		"redis://u:ge/heim@h":                           "ge/heim",
		"redis://u:ge@heim@h":                           "ge@heim",
		"postgres://h/d?password=geheim":                "geheim",
		"redis+sentinel://h/m?sentinel-password=geheim": "geheim",
	} {
		if got := secretsOf(url).scrub(text); strings.Contains(got, "heim") {
			t.Errorf("%s: %q becomes %q", url, text, got)
		}
	}
}

func TestWrongCommandLinesSaySo(t *testing.T) {
	for line, want := range map[string]string{
		"":                            "which command?",
		"lss":                         "there is no command lss",
		"inspect":                     "use it as lockctl inspect KEY",
		"inspect a b":                 "one word for each",
		"ls -yes":                     "ls has no flag -yes",
		"ls -timeout 3":               "timeout",
		"ls -timeout 0s":              "use a millisecond or more",
		"watch -interval 1ms":         "100ms or more",
		"ls -nonsense":                "there is no flag -nonsense; -- ends the flags",
		"inspect -k":                  "lockctl inspect -- -k",
		"ls *":                        "ls takes flags alone, and no *",
		"help lss":                    "there is no command lss",
		"completion csh":              "bash, zsh and fish",
		"ls -store x://y":             "the scheme of the store's URL",
		"ls -store redis://h/x":       "no number",
		"ls -store redis://h?x=1":     "the options that it has: protocol",
		"ls -store etcd://h?x=1":      "has no options behind the ?",
		"ls -namespace a/b":           "a slash ends the namespace",
		"queue ls q -store etcd://h":  "serial queues are in Redis",
		"queue ls q -store redis://h": "need -queue-prefix",
		"redis://u:geheim@h ls":       "goes behind -store",
		`inspect "a`:                  "read as Go reads a string",
	} {
		r := ctl(t, "redis://127.0.0.1:1", strings.Fields(line)...)
		if r.status != misused || !strings.Contains(r.errs, want) || strings.Contains(r.errs, "geheim") {
			t.Errorf("%q: status %d, %q", line, r.status, r.errs)
		}
	}
	if r := ctl(t, "", "ls"); r.status != misused || !strings.Contains(r.errs, "which store?") {
		t.Errorf("status %d, %q", r.status, r.errs)
	}
}

func TestSecretsOfEveryArgumentAndVariableStayHidden(t *testing.T) {
	for _, url := range []string{"redis://u:geheim@h", "redis://:geheim@h", `redis://u:"ge\heim@h`} {
		for _, line := range [][]string{
			{"-timeout", url, "ls"}, {"ls", "-interval=" + url}, {"-namespace", url, "ls"}, {"release", "-count", url}, {"ls", "-store", url + ":x"}, {"queue", "ls", url},
		} {
			if r := ctl(t, "redis://127.0.0.1:1", line...); r.status == fine || strings.Contains(r.out+r.errs, "heim") {
				t.Errorf("%q: status %d\n%s%s", line, r.status, r.out, r.errs)
			}
		}
		var errs bytes.Buffer
		getenv := func(name string) string {
			return map[string]string{"LOCKAROUND_STORE": "redis://127.0.0.1:1", "LOCKAROUND_NAMESPACE": url}[name]
		}
		if status := run(t.Context(), process{errs: &errs, getenv: getenv}, []string{"ls"}); status != misused || strings.Contains(errs.String(), "heim") {
			t.Errorf("a namespace of %s: status %d, %s", url, status, errs.String())
		}
	}
}

func TestHelpOfACommandHasItsFlagsAlone(t *testing.T) {
	for _, line := range []string{"help watch", "watch -h", "help queue ls", "help queue", "version"} {
		out := ctl(t, "", strings.Fields(line)...).must(t, fine).out
		for text, want := range map[string]bool{
			"-interval": line == "help watch" || line == "watch -h", "the default is 2s": line == "help watch" || line == "watch -h",
			"-timeout": line != "version", "the default is 3s": line != "version", "the default is 24h0m0s": strings.Contains(line, "queue"), "lockctl ": line == "version",
			"queue drop": line == "help queue",
		} {
			if strings.Contains(out, text) != want && !(text == "queue drop" && line == "help queue ls") {
				t.Errorf("%s has %q: %v\n%s", line, text, !want, out)
			}
		}
	}
	if out := ctl(t, "", "help").must(t, fine).out; !strings.Contains(out, "protocol=2") || !strings.Contains(out, "What follows -- is an argument") {
		t.Errorf("%s", out)
	}
}

func TestFlagsMayStandAnywhere(t *testing.T) {
	none := func(string) string { return "" }
	for _, line := range []string{"-json inspect -namespace n k", "inspect k -json -namespace=n", "-namespace n inspect -json -- k"} {
		c, o, args, err := parse(strings.Fields(line), none)
		if err != nil || c.name != "inspect" || !o.json || o.namespace != "n" || len(args) != 1 || args[0] != "k" {
			t.Errorf("%q: %v, %+v, %q, %v", line, c.name, o, args, err)
		}
	}
	if _, _, args, err := parse([]string{"inspect", "--", "-k"}, none); err != nil || args[0] != "-k" {
		t.Errorf("%q, %v", args, err)
	}
}

func TestHelpAndCompletionKnowEveryCommandAndFlag(t *testing.T) {
	texts := map[string]string{"help": ctl(t, "", "help").must(t, fine).out}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		texts[shell] = ctl(t, "", "completion", shell).must(t, fine).out
	}
	flags, _ := newFlags(func(string) string { return "" })
	for name, text := range texts {
		for _, c := range commands() {
			for _, word := range strings.Fields(c.name) {
				if !strings.Contains(text, word) {
					t.Errorf("%s lacks %s", name, word)
				}
			}
		}
		flags.VisitAll(func(f *flag.Flag) {
			if !strings.Contains(text, f.Name) {
				t.Errorf("%s lacks -%s", name, f.Name)
			}
		})
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("needs bash in PATH, to try its completion")
	}
	for line, want := range map[string]string{"lockctl in": "inspect", "lockctl queue rep": "repeat", "lockctl ls -pre": "-prefix", "lockctl completion z": "zsh"} {
		words := strings.Fields(line)
		script := texts["bash"] + "\nCOMP_WORDS=(" + line + ") COMP_CWORD=" + strconv.Itoa(len(words)-1) + " _lockctl; echo ${COMPREPLY[@]}"
		script = strings.Replace(script, "COMP_WORDS=("+line+") COMP_CWORD", "COMP_WORDS=("+line+"); COMP_CWORD", 1)
		script = strings.Replace(script, " _lockctl; echo", "; _lockctl; echo", 1)
		cmd := exec.Command("bash", "-c", script)
		out, err := cmd.CombinedOutput()
		if err != nil || string(bytes.TrimSpace(out)) != want {
			t.Errorf("%s: %q, %v; want %q", line, out, err, want)
		}
	}
}
