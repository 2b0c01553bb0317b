package server

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// SingleZooKeeper is a kind of one ZooKeeper server alone, with its own defaults.
const SingleZooKeeper Kind = "single zookeeper"

// requestsOfZooKeeper counts packets that clients have sent.
func requestsOfZooKeeper(ctx context.Context, addr string) (int64, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()                                //nolint:errcheck // the server closes it
	_ = conn.SetDeadline(time.Now().Add(time.Minute)) // fails only if the connection has
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return 0, err
	}
	text, err := io.ReadAll(conn)
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "\nReceived: ")
	n, _, _ := strings.Cut(rest, "\n")
	return strconv.ParseInt(n, 10, 64)
}

// requestsOfMariaDB counts statements, of which each is a request.
func requestsOfMariaDB(ctx context.Context, addr string) (n int64, err error) {
	db, err := Pool(MariaDB, Source(MariaDB, addr))
	if err != nil {
		return 0, err
	}
	defer db.Close() //nolint:errcheck // what it was asked it has answered
	var name string
	err = db.QueryRowContext(ctx, `SHOW GLOBAL STATUS LIKE 'Questions'`).Scan(&name, &n)
	if err == sql.ErrNoRows {
		err = fmt.Errorf("the server does not say: %w", err)
	}
	return n, err
}
