package zklock_test

import (
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// warm asks a server for a little of everything that the driver does.
func warm(addr string) error {
	conn, events, err := zk.Connect([]string{addr}, 30*time.Second, zk.WithLogger(quiet{}))
	if err != nil {
		return err
	}
	defer func() {
		conn.Close()
		for range events { // until the client's goroutines have ended
		}
	}()
	acl := zk.WorldACL(zk.PermAll)
	dir := fmt.Sprintf("/warm-%d", time.Now().UnixNano())
	if _, err := conn.CreateContainer(dir, nil, zk.FlagContainer, acl); err != nil {
		return err
	}
	for range 20 {
		name, err := conn.Create(dir+"/x-", nil, zk.FlagEphemeralSequential, acl)
		if err != nil {
			return err
		}
		if _, _, _, err = conn.GetW(name); err == nil {
			_, err = conn.Set(name, nil, 0)
		}
		if err == nil {
			_, err = conn.Sync(dir)
		}
		if err == nil {
			_, _, err = conn.Children(dir)
		}
		if err == nil {
			_, err = conn.Multi(&zk.DeleteRequest{Path: name, Version: 1}, &zk.SetDataRequest{Path: dir, Version: -1})
		}
		if err != nil {
			return err
		}
	}
	return conn.Delete(dir, -1)
}
