package main

import (
	"net"
	"net/url"
	"strings"
)

// location is the URL of a store, taken apart. Several hosts share what else it says.
type location struct {
	scheme   string
	user     string
	password string
	hosts    []string // host:port
	path     string   // without the slash before it
	query    url.Values
}

var urlExamples = []string{
	"redis://user:password@host:6379/0",
	"redis+sentinel://user:password@host:26379,host:26379/mymaster",
	"redis+cluster://user:password@host:6379,host:6379",
	"redis+redlock://user:password@host:6379,host:6379,host:6379",
	"etcd://user:password@host:2379,host:2379",
	"zookeeper://user:password@host:2181,host:2181/lockaround-1",
	"postgres://user:password@host:5432/database?sslmode=require",
	"mysql://user:password@host:3306/database?tls=true   (or mariadb://)",
}

const urlOptions = `  redis, all kinds   protocol=2 for a server without RESP3; the default is 3
  redis+sentinel     db, sentinel-user and sentinel-password as well
  postgres           those of pgx
  mysql              tls=true, false, skip-verify or preferred
`

// ports are what stands for a port that is missing.
var ports = map[string]string{
	"redis": "6379", "redis+cluster": "6379", "redis+redlock": "6379", "redis+sentinel": "26379",
	"rediss": "6379", "rediss+cluster": "6379", "rediss+redlock": "6379", "rediss+sentinel": "26379",
	"etcd": "2379", "etcds": "2379", "zookeeper": "2181",
	"postgres": "5432", "postgresql": "5432", "mysql": "3306", "mariadb": "3306",
}

// parseURL takes the URL of a store apart. No error shows anything of it but the scheme, since
// its parts may be confused.
func parseURL(raw string) (*location, error) {
	scheme, rest, found := strings.Cut(raw, "://")
	l := &location{scheme: scheme}
	defaultPort, known := ports[scheme]
	switch {
	case raw == "":
		return nil, misuse("which store? give -store or LOCKAROUND_STORE a URL; lockctl help has one of each kind")
	case !found:
		return nil, misuse("the store is no URL, such as %s", urlExamples[0])
	case !known:
		return nil, misuse("the scheme of the store's URL is none of those that lockctl help shows")
	}
	var err error
	end := strings.IndexAny(rest, "/?")
	authority := rest
	if end >= 0 {
		authority, rest = rest[:end], rest[end:]
	} else {
		rest = ""
	}
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, password, _ := strings.Cut(authority[:i], ":")
		if l.user, err = url.PathUnescape(user); err == nil {
			l.password, err = url.PathUnescape(password)
		}
		if err != nil {
			return nil, misuse("the user or the password of the store's URL has a %% that two hexadecimal digits should follow; write a %% as %%25")
		}
		authority = authority[i+1:]
	}
	for _, host := range strings.Split(authority, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), defaultPort)
		}
		name, port, err := net.SplitHostPort(host)
		if err != nil || name == "" || port == "" || strings.Trim(port, "0123456789") != "" || strings.ContainsAny(name, "@ #%") || strings.IndexFunc(name, unprintable) >= 0 {
			return nil, misuse("a host of the store's URL is not host or host:port; write a /, ? or @ of a password as %%2F, %%3F or %%40")
		}
		l.hosts = append(l.hosts, host)
	}
	path, query, _ := strings.Cut(rest, "?")
	if l.path, err = url.PathUnescape(strings.TrimPrefix(path, "/")); err != nil || strings.Contains(path, "@") {
		return nil, misuse("the path of the store's URL is wrong; write a / of a password as %%2F")
	}
	if l.query, err = url.ParseQuery(query); err != nil {
		return nil, misuse("what follows the ? of the store's URL is not name=value&name=value")
	}
	if several := len(l.hosts) > 1; several && !strings.Contains(scheme, "+") && !strings.HasPrefix(scheme, "etcd") && !strings.HasPrefix(scheme, "postgres") && scheme != "zookeeper" {
		return nil, misuse("a store of the scheme %s has one host; lockctl help has the schemes for several", scheme)
	}
	return l, nil
}

// kind returns the scheme without what says that it goes by TLS.
func (l *location) kind() (kind string, tls bool) {
	switch {
	case strings.HasPrefix(l.scheme, "rediss"):
		return "redis" + strings.TrimPrefix(l.scheme, "rediss"), true
	case l.scheme == "etcds":
		return "etcd", true
	case l.scheme == "postgresql":
		return "postgres", false
	case l.scheme == "mariadb":
		return "mysql", false
	}
	return l.scheme, false
}

// String returns the URL without its user, its password and its options.
func (l *location) String() string {
	text := l.scheme + "://" + strings.Join(l.hosts, ",")
	if l.path != "" {
		text += "/" + url.PathEscape(l.path)
	}
	return inert(text)
}

// only refuses options that the scheme does not have, so that none is ignored.
func (l *location) only(names ...string) error {
	for name := range l.query {
		known := false
		for _, n := range names {
			known = known || n == name
		}
		if !known {
			if len(names) == 0 {
				return misuse("a URL of the scheme %s has no options behind the ?", l.scheme)
			}
			return misuse("a URL of the scheme %s has no such option behind the ?; the options that it has: %s", l.scheme, strings.Join(names, ", "))
		}
	}
	return nil
}
