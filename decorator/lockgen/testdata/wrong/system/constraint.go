//go:build go1.20 && !special

package main

import "context"

//lock:with "special"
func special(ctx context.Context) error { return nil }
