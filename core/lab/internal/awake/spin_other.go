//go:build !linux

package awake

import "errors"

func spin() error { return errors.ErrUnsupported }
