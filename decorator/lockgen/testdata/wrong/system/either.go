//go:build linux || go1.20

package main

import "context"

//lock:with "either"
func either(ctx context.Context) error { return nil }
