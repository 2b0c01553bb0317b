//go:build !linux

package measure

import "errors"

// Spin is not to be had here.
func Spin(string) error { return errors.ErrUnsupported }
