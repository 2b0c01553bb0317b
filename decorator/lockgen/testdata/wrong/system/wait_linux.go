package main

import "context"

//lock:with "linux"
func linux(ctx context.Context) error { return nil }
