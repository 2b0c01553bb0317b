package testservers_test

import (
	"fmt"
	"testing"

	"github.com/lockaround/lockaround/core/testservers"
)

// A test gets a server, breaks it, and finds it at the same address.
func ExampleRedis() {
	_ = func(t *testing.T) { // TestStock, say
		server := testservers.Redis(t, "--maxmemory", "10mb")
		if _, err := server.Do("SET", "stock:sku-1", "100"); err != nil {
			t.Fatal(err)
		}
		server.Pause() // clients' calls hang
		server.Resume()
		server.Restart() // without persistence it is empty
		if left, err := server.Do("EXISTS", "stock:sku-1"); err != nil || left != "0" {
			t.Errorf("%s, %v", left, err)
		}
	}
}

// The tests of a package share a server that takes long to start.
func ExampleShare() {
	database := testservers.Share(testservers.PostgreSQL)

	_ = func(m *testing.M) int { return testservers.Main{M: m}.Run() } // by TestMain
	_ = func(t *testing.T) { fmt.Println(database.For(t).Source("")) }
}
