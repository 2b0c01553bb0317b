//go:build unix

package servers

import (
	"os/exec"
	"syscall"
)

// become makes a command run as another user.
func become(cmd *exec.Cmd, uid, gid int) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}
