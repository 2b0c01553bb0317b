package interceptor

import (
	"errors"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/lockaround/lockaround/core"
)

// metaPrefix begins the placeholders for metadata.
const metaPrefix = "meta."

// resolveMetadata returns how the value of {meta.name} is read from a call.
func resolveMetadata(name string) (core.Accessor[call], error) {
	name = strings.ToLower(name)
	switch {
	case !metadataName(name):
		return nil, errors.New("this cannot be the name of metadata; use letters, digits, dashes, dots and underscores")
	case strings.HasSuffix(name, "-bin"):
		return nil, errors.New("binary metadata cannot be a part of a key; use WithValue")
	case strings.HasPrefix(name, "grpc-"):
		return nil, errors.New("metadata that begins with grpc- is gRPC's own; use another name")
	}
	return func(dst []byte, c call) ([]byte, error) {
		switch vs := c.metadata(name); {
		case len(vs) > 1:
			return dst, core.ErrRepeated
		case len(vs) == 0 || vs[0] == "":
			return dst, core.ErrMissing
		default:
			return append(dst, vs[0]...), nil
		}
	}, nil
}

// metadataName reports whether name may be a key of metadata, in lower case.
func metadataName(name string) bool {
	for i := range len(name) {
		switch b := name[i]; {
		case 'a' <= b && b <= 'z', '0' <= b && b <= '9', b == '-', b == '_', b == '.':
		default:
			return false
		}
	}
	return name != ""
}

// metadata returns all values of a name: those that came with the call, or at a
// client those that go with it.
func (c call) metadata(name string) []string {
	if !c.outgoing {
		return metadata.ValueFromIncomingContext(c.ctx, name)
	}
	md, _ := metadata.FromOutgoingContext(c.ctx)
	return md.Get(name)
}
