package place

import "context"

//lock:with "test"
func inTest(ctx context.Context) error { return nil }

// lock:with "test"
func spacedInTest(ctx context.Context) error { return nil }
