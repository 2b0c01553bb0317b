package body

import (
	"strings"
	"testing"
)

func BenchmarkJSONValue(b *testing.B) {
	doc := []byte(`{"items":[` + strings.Repeat(`{"name":"something","n":12345},`, 300) + `{}],"order":{"sku":"a-1"}}`)
	path := []string{"order", "sku"}
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := strictJSON(doc, path); err != nil {
			b.Fatal(err)
		}
	}
}
