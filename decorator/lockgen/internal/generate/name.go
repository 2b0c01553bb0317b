package generate

import (
	"fmt"
	"go/types"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// names are identifiers that are taken in a scope.
type names map[string]bool

// fresh takes a name that is free: base, or base with a number.
func (n names) fresh(base string) string {
	name := base
	for i := 2; n[name]; i++ {
		name = fmt.Sprint(base, i)
	}
	n[name] = true
	return name
}

// with returns the names and more.
func (n names) with(more ...string) names {
	all := maps.Clone(n)
	for _, name := range more {
		all[name] = true
	}
	return all
}

// words takes all identifiers of a text.
func (n names) words(text string) {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		n[word] = true
	}
}

// unexported is a name that begins in lower case, with the whole of HTTP in HTTPStore.
func unexported(name string) string {
	letters := []rune(name)
	for i, r := range letters {
		if !unicode.IsUpper(r) || i > 0 && i+1 < len(letters) && !unicode.IsUpper(letters[i+1]) {
			break
		}
		letters[i] = unicode.ToLower(r)
	}
	return string(letters)
}

// exported is a name that begins in upper case.
func exported(name string) string {
	first, size := utf8.DecodeRuneInString(name)
	return string(unicode.ToUpper(first)) + name[size:]
}

// imports are those of the file that is generated.
type imports struct {
	self  *types.Package
	taken names             // what their names must not be
	names map[string]string // by path
}

// use returns what a package is called in the file.
func (i *imports) use(path, name string) string {
	if called, ok := i.names[path]; ok {
		return called
	}
	i.names[path] = i.taken.fresh(name)
	return i.names[path]
}

// typ is a type as it is written in the file.
func (i *imports) typ(t types.Type) string {
	return types.TypeString(t, func(p *types.Package) string {
		if p == i.self {
			return ""
		}
		return i.use(p.Path(), p.Name())
	})
}

// declaration is the file's import declaration.
func (i *imports) declaration() string {
	var standard, others strings.Builder
	for _, p := range slices.Sorted(maps.Keys(i.names)) {
		b := &others
		if first, _, _ := strings.Cut(p, "/"); !strings.Contains(first, ".") {
			b = &standard
		}
		if name := i.names[p]; name != path.Base(p) {
			fmt.Fprintf(b, "\t%s %q\n", name, p)
		} else {
			fmt.Fprintf(b, "\t%q\n", p)
		}
	}
	return "import (\n" + standard.String() + "\n" + others.String() + ")\n"
}
