//go:build !nomsgpack

package middleware_test

import "github.com/gin-gonic/gin/binding"

// gin's tag nomsgpack leaves MessagePack out.
func init() {
	binders = append(binders, binder{
		name:        "ShouldBindWith MsgPack",
		contentType: binding.MIMEMSGPACK, write: writeMsgPack,
		read: bind(with(binding.MsgPack)), sees: fields, nothing: "|", needsBody: true,
	})
}

// writeMsgPack writes a map of two (fixmap), the value of pad as a str 16.
func writeMsgPack(x, pad string) string {
	return "\x82\xa1x" + string([]byte{0xa0 + byte(len(x))}) + x + "\xa3pad" + string([]byte{0xda, byte(len(pad) >> 8), byte(len(pad))}) + pad
}
