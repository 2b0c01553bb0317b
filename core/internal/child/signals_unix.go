//go:build unix

package child

import "syscall"

const (
	stop = syscall.SIGSTOP
	cont = syscall.SIGCONT
	kill = syscall.SIGKILL
)
