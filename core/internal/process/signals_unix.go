//go:build unix

package process

import "syscall"

const (
	stop = syscall.SIGSTOP
	cont = syscall.SIGCONT
	kill = syscall.SIGKILL
)
