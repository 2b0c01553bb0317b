package queues_test

import (
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// warm asks a server for a little of everything that the store does.
func warm(addr string) error {
	conn, events, err := connect(addr, sessionTimeout)
	if err != nil {
		return err
	}
	defer func() {
		conn.Close()
		for range events { // until the client's goroutines have ended
		}
	}()
	acl := zk.WorldACL(zk.PermAll)
	name := fmt.Sprintf("/warm-%d", time.Now().UnixNano())
	for range 20 {
		_, err := conn.Multi(&zk.CreateRequest{Path: name, Acl: acl}, &zk.SetDataRequest{Path: name, Version: 0})
		if err == nil {
			_, _, _, err = conn.GetW(name)
		}
		if err == nil {
			_, err = conn.Sync(name)
		}
		if err == nil {
			_, _, err = conn.Children(name)
		}
		if err == nil {
			_, err = conn.Multi(&zk.DeleteRequest{Path: name, Version: 1})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
