package main

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/redlock"
	"github.com/lockaround/lockaround/core/sqllock"
	"github.com/lockaround/lockaround/core/zklock"
)

// session is the program at a store.
type session struct {
	process
	*options
	secrets secrets
	at      *location
	locks   *core.Engine
	store
}

// store is what the drivers, and the checks of doctor, reach a store by. Of the clients one is set.
type store struct {
	driver  driver.Driver
	redis   redis.UniversalClient // a server's, a Sentinel's or a Cluster's
	redlock []*redis.Client
	etcd    *clientv3.Client
	db      *sql.DB
	dialect sqllock.Dialect
	zk      *zkAddress
	ends    []func() error
}

// zkAddress is how ZooKeeper is reached; its driver makes the connections.
type zkAddress struct {
	servers []string
	root    string
	auth    []byte // user:password; empty is none
}

// open connects to the store. It does no input or output.
func open(ctx context.Context, p process, o *options, hidden secrets) (*session, error) {
	at, err := parseURL(o.store)
	if err != nil {
		return nil, err
	}
	s := &session{process: p, options: o, secrets: hidden, at: at}
	if err := s.connect(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.locks, err = core.New(s.driver, core.WithNamespace(o.namespace), core.WithStoreTimeout(o.timeout),
		core.WithForceRelease(), core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, errors.Join(usageError(err.Error()), s.close())
	}
	return s, nil
}

// close ends the connections.
func (s *session) close() error {
	var errs []error
	if s.locks != nil {
		errs = append(errs, s.locks.Close())
	}
	for _, end := range s.ends {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

func (s *session) connect(ctx context.Context) error {
	kind, tls := s.at.kind()
	switch kind {
	case "etcd":
		return s.connectEtcd(tls)
	case "zookeeper":
		return s.connectZooKeeper()
	case "postgres":
		return s.connectPostgres()
	case "mysql":
		return s.connectMySQL()
	}
	return s.connectRedis(ctx, kind, tls)
}

func (s *session) connectRedis(_ context.Context, kind string, secure bool) error {
	names := []string{"protocol"}
	if kind == "redis+sentinel" {
		names = append(names, "db", "sentinel-user", "sentinel-password")
	}
	if err := s.at.only(names...); err != nil {
		return err
	}
	number := func(text, what string) (int, error) {
		n, err := strconv.Atoi(text)
		if text != "" && err != nil || n < 0 {
			return 0, misuse("the %s of the store's URL is no number", what)
		}
		return n, nil
	}
	protocol, err := number(s.at.query.Get("protocol"), "protocol")
	if err != nil {
		return err
	}
	var config *tls.Config
	if secure {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	dial := redis.NewDialer(&redis.Options{DialTimeout: s.timeout, TLSConfig: config})
	o := redis.UniversalOptions{
		Dialer:   bounded(dial),
		Username: s.at.user, Password: s.at.password, TLSConfig: config, Protocol: protocol,
		DialTimeout: s.timeout, ReadTimeout: s.timeout, WriteTimeout: s.timeout, ContextTimeoutEnabled: true,
		DisableIdentity: true, // what a client says of itself takes rights that locks do not need
	}
	switch kind {
	case "redis":
		if o.DB, err = number(s.at.path, "database"); err != nil {
			return err
		}
		simple := o.Simple()
		simple.Addr = s.at.hosts[0]
		s.redis = redis.NewClient(simple)
	case "redis+sentinel":
		if o.DB, err = number(s.at.query.Get("db"), "database"); err != nil {
			return err
		}
		if s.at.path == "" {
			return misuse("the path of a redis+sentinel URL is the master's name; it is missing")
		}
		failover := o.Failover()
		failover.MasterName, failover.SentinelAddrs = s.at.path, s.at.hosts
		failover.SentinelUsername, failover.SentinelPassword = s.at.query.Get("sentinel-user"), s.at.query.Get("sentinel-password")
		s.redis = redislock.NewFailoverClient(failover)
	case "redis+cluster":
		if s.at.path != "" {
			return misuse("a Cluster has one database; leave the path of the store's URL out")
		}
		cluster := o.Cluster()
		cluster.Addrs = s.at.hosts
		s.redis = redis.NewClusterClient(cluster)
	case "redis+redlock":
		if o.DB, err = number(s.at.path, "database"); err != nil {
			return err
		}
		for _, host := range s.at.hosts {
			simple := o.Simple()
			simple.Addr = host
			c := redis.NewClient(simple)
			s.redlock, s.ends = append(s.redlock, c), append(s.ends, c.Close)
		}
		s.driver = redlock.New(s.redlock)
		return nil
	}
	s.driver, s.ends = redislock.New(s.redis), append(s.ends, s.redis.Close)
	return nil
}

func (s *session) connectEtcd(secure bool) error {
	if err := s.at.only(); err != nil {
		return err
	}
	config := clientv3.Config{
		Username: s.at.user, Password: s.at.password, Logger: zap.NewNop(), // it would log every attempt
		DialTimeout: s.timeout, DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: time.Second,
	}
	for _, host := range s.at.hosts {
		config.Endpoints = append(config.Endpoints, map[bool]string{false: "http://", true: "https://"}[secure]+host)
	}
	if secure {
		config.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	client, err := clientv3.New(config)
	if err != nil {
		return err
	}
	etcdlock.KeepLoggedIn(client)
	s.etcd, s.driver, s.ends = client, etcdlock.New(client), append(s.ends, client.Close)
	return nil
}

func (s *session) connectZooKeeper() error {
	if err := s.at.only(); err != nil {
		return err
	}
	s.zk = &zkAddress{servers: s.at.hosts, root: zklock.DefaultRoot}
	var opts []zklock.Option
	if s.at.path != "" {
		s.zk.root = "/" + strings.TrimSuffix(s.at.path, "/")
		opts = append(opts, zklock.WithRoot(s.zk.root))
	}
	if s.at.user != "" {
		s.zk.auth = []byte(s.at.user + ":" + s.at.password)
		opts = append(opts, zklock.WithAuth("digest", s.zk.auth))
	}
	s.driver = zklock.New(s.at.hosts, opts...)
	return nil
}

func (s *session) connectPostgres() error {
	config, err := pgx.ParseConfig(s.options.store)
	if err != nil {
		return misuse("the store's URL is none that pgx reads, such as postgres://user:password@host:5432/database?sslmode=require")
	}
	config.ConnectTimeout = s.timeout
	return s.useSQL(stdlib.OpenDB(*config), sqllock.PostgreSQL)
}

func (s *session) connectMySQL() error {
	if err := s.at.only("tls"); err != nil {
		return err
	}
	config := mysqldriver.NewConfig()
	config.User, config.Passwd, config.DBName = s.at.user, s.at.password, s.at.path
	config.Net, config.Addr = "tcp", s.at.hosts[0]
	config.TLSConfig, config.InterpolateParams, config.Timeout = s.at.query.Get("tls"), true, s.timeout
	connector, err := mysqldriver.NewConnector(config)
	if err != nil {
		return misuse("the store's URL is none that go-sql-driver/mysql can use: tls may be true, false, skip-verify or preferred")
	}
	return s.useSQL(sql.OpenDB(connector), sqllock.MySQL)
}

// useSQL uses a database, with few connections of it.
func (s *session) useSQL(db *sql.DB, d sqllock.Dialect) (err error) {
	db.SetMaxOpenConns(8)
	s.db, s.dialect, s.ends = db, d, append(s.ends, db.Close)
	s.driver, err = sqllock.New(db, d)
	return err
}

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
