package grammar

import "context"

// lock:with "a"
func spaced(ctx context.Context) error { return nil }

//lock:wiht "a"
func misspelt(ctx context.Context) error { return nil }

//Lock:With "a"
func capitals(ctx context.Context) error { return nil }

//lockwith "a"
func joined(ctx context.Context) error { return nil }

//lock: with "a"
func torn(ctx context.Context) error { return nil }

//lock:shared "a"
func other(ctx context.Context) error { return nil }

/*lock:with "a"*/
func block(ctx context.Context) error { return nil }

//lock:with
func alone(ctx context.Context) error { return nil }

//lock:with stock:{sku} wait=2s
func unquoted(ctx context.Context, sku string) error { return nil }

//lock:with wait=2s "a"
func optionFirst(ctx context.Context) error { return nil }

//lock:with "stock:{sku} wait=2s
func unterminated(ctx context.Context, sku string) error { return nil }

//lock:with `stock
func unterminatedRaw(ctx context.Context, sku string) error { return nil }

//lock:with "a\q"
func escape(ctx context.Context) error { return nil }

//lock:with ""
func empty(ctx context.Context) error { return nil }

//lock:with"a"
func noBlank(ctx context.Context) error { return nil }

//lock:with "a"wait=1s
func noBlankAfter(ctx context.Context) error { return nil }

//lock:with "a" "b"
func twoStrings(ctx context.Context) error { return nil }

//lock "stock:{sku}"
func withoutWith(ctx context.Context, sku string) error { return nil }

//with:lock "stock:{sku}"
func turned(ctx context.Context, sku string) error { return nil }

// - lock:with "stock:{sku}"
func listed(ctx context.Context, sku string) error { return nil }

/*
blockSecond takes one.
lock:with "stock:{sku}"
*/
func blockSecond(ctx context.Context, sku string) error { return nil }
