package builtin

import "context"

func len() int { return 0 }

//lock:with "refill:{skus[]}"
func Refill(ctx context.Context, skus []string) error { return nil }
