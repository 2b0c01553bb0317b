package middleware

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// parseRule splits a key of [Rules]. The method is empty if the key is a path,
// and the path is empty if it is malformed.
func parseRule(key string) (method, route string, faults []error) {
	const form = `write it as "POST /products/:sku", or without a method for all`
	switch words := strings.Fields(key); {
	case len(words) == 0:
		return "", "", []error{errors.New("the key is empty; " + form)}
	case len(words) > 2:
		return "", "", []error{errors.New("the key is more than a method and a path; " + form)}
	case strings.Join(words, " ") != key:
		faults = append(faults, fmt.Errorf("the key has white space beyond the one space after the method; write %q", strings.Join(words, " ")))
		method, route = words[0], words[len(words)-1]
		if len(words) == 1 {
			method = ""
		}
	case len(words) == 2:
		method, route = words[0], words[1]
	case isMethod(strings.ToUpper(key)):
		return "", "", []error{errors.New("the key has no path; " + form)}
	default:
		route = key
	}
	if method != "" && !isMethod(method) {
		if upper := strings.ToUpper(method); isMethod(upper) {
			faults = append(faults, fmt.Errorf("methods are written in upper case; write %s", upper))
		} else {
			faults = append(faults, errors.New("the method is not one of upper-case letters; "+form))
		}
	}
	if err := checkPath(route); err != nil {
		return method, "", append(faults, err)
	}
	return method, route, faults
}

// isMethod reports whether gin takes s as a method.
func isMethod(s string) bool {
	for i := range len(s) {
		if s[i] < 'A' || s[i] > 'Z' {
			return false
		}
	}
	return s != ""
}

// checkPath says why p cannot be the path of a gin route.
func checkPath(p string) error {
	if p[0] != '/' {
		return fmt.Errorf("the path does not begin with a slash; write /%s", p)
	}
	clean := path.Clean(p)
	if clean != "/" && strings.HasSuffix(p, "/") {
		clean += "/"
	}
	if clean != p {
		return fmt.Errorf("gin cleans the paths of its routes, so that this is none; write %s", clean)
	}
	params := pathParams(p)
	for i, name := range params {
		switch {
		case name == "":
			return errors.New("a parameter of the path has no name; write :name or *name")
		case strings.ContainsAny(name, ":*"):
			return errors.New("two parameters in one segment of the path; put a slash between them")
		case slices.Contains(params[:i], name):
			return fmt.Errorf("the path has two parameters called %s; give each a name of its own", name)
		}
	}
	if at := strings.IndexByte(p, '*'); at > 0 && (p[at-1] != '/' || strings.IndexByte(p[at:], '/') >= 0) {
		return errors.New("a *parameter takes the whole rest of the path; put it last, after a slash")
	}
	return nil
}

// pathParams returns the names of the parameters of a route's path, in order.
func pathParams(route string) []string {
	var names []string
	for i := 0; i < len(route); i++ {
		switch route[i] {
		case '\\':
			i++ // an escaped colon
		case ':', '*':
			name, _, _ := strings.Cut(route[i+1:], "/")
			names = append(names, name)
			i += len(name)
		}
	}
	return names
}
