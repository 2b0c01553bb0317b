package main

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

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
