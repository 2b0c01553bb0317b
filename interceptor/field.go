package interceptor

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lockaround/lockaround/core"
)

// fieldPath is the way from a message to a leaf in it. It may go through one repeated field.
type fieldPath []protoreflect.FieldDescriptor

// listMark stands behind the name of a repeated field, each element of which is a key.
const listMark = "[]"

// compilePath resolves a dotted path of field names, as they stand in the .proto,
// in a message.
func compilePath(md protoreflect.MessageDescriptor, name string) (fieldPath, error) {
	var path fieldPath
	names := strings.Split(name, ".")
	for i, element := range names {
		element, ofList := strings.CutSuffix(element, listMark)
		fd := md.Fields().ByName(protoreflect.Name(element))
		if fd == nil {
			return nil, noField(md, element)
		}
		path = append(path, fd)
		switch {
		case fd.IsMap():
			return nil, fmt.Errorf("%s of %s is a map; a part of a key is one value, or one of each element of a repeated field", element, md.FullName())
		case fd.IsList() && !ofList:
			return nil, fmt.Errorf("%s of %s is repeated; a part of a key is one value%s", element, md.FullName(), eachOf(fd, names[:i]))
		case ofList && !fd.IsList():
			return nil, fmt.Errorf("%s of %s is not repeated; write it without []", element, md.FullName())
		case i < len(names)-1 && fd.Message() == nil:
			return nil, fmt.Errorf("%s of %s is of type %s, which has no fields", element, md.FullName(), fd.Kind())
		case i < len(names)-1:
			md = fd.Message()
		case fd.Message() != nil:
			hint := ""
			if leaf := anyLeaf(fd.Message()); leaf != "" {
				hint = ", such as " + leaf
			}
			return nil, fmt.Errorf("%s of %s is a message; name a field of it%s", element, md.FullName(), hint)
		case !isLeaf(fd.Kind()):
			return nil, fmt.Errorf("%s of %s is of type %s; a part of a key is a string, an integer, a bool or an enum", element, md.FullName(), fd.Kind())
		}
	}
	return path, nil
}

func isLeaf(k protoreflect.Kind) bool {
	switch k {
	case protoreflect.BytesKind, protoreflect.FloatKind, protoreflect.DoubleKind, protoreflect.MessageKind, protoreflect.GroupKind:
		return false
	}
	return true
}

// noField says that md has no field of that name, and which it may be meant for.
func noField(md protoreflect.MessageDescriptor, name string) error {
	if name == "" {
		return errors.New("a name between dots is empty; a field path is written {field} or {field.field}")
	}
	var names []string
	for i := range md.Fields().Len() {
		names = append(names, string(md.Fields().Get(i).Name()))
	}
	const few = 12
	hint := ""
	switch near := core.Nearest(name, names); {
	case md.IsPlaceholder():
		hint = "; the file that declares this message is not there"
	case near != "":
		hint = "; did you mean " + near + "?"
	case len(names) == 0:
		hint = "; it has no fields"
	case len(names) <= few:
		hint = "; it has " + strings.Join(names, ", ")
	}
	return fmt.Errorf("%s has no field %s%s", md.FullName(), name, hint)
}

// eachOf is a hint at how the elements of a repeated field are written.
func eachOf(fd protoreflect.FieldDescriptor, outer []string) string {
	name := strings.Join(append(slices.Clone(outer), string(fd.Name())), ".") + listMark
	if md := fd.Message(); md != nil {
		name += "." + anyLeaf(md)
	} else if !isLeaf(fd.Kind()) {
		return ""
	}
	if strings.HasSuffix(name, ".") {
		return ""
	}
	return "; {" + name + "} in an element of Keys is a key for each element"
}

// anyLeaf is a field of a message that can be a part of a key; empty if it has none.
func anyLeaf(md protoreflect.MessageDescriptor) string {
	for i := range md.Fields().Len() {
		if fd := md.Fields().Get(i); !fd.IsList() && !fd.IsMap() && isLeaf(fd.Kind()) {
			return string(fd.Name())
		}
	}
	return ""
}

// appendTo appends the value that the path leads to.
func (p fieldPath) appendTo(dst []byte, m protoreflect.Message) ([]byte, error) {
	for i, fd := range p {
		if fd.HasPresence() && !m.Has(fd) {
			return dst, core.ErrMissing
		}
		v := m.Get(fd)
		switch {
		case fd.IsList():
			list := v.List()
			return core.AppendList(dst, list.Len(), func(dst []byte, n int) ([]byte, error) {
				return p[i+1:].appendElement(dst, fd, list.Get(n))
			})
		case fd.Message() == nil:
			return appendScalar(dst, fd, v), nil
		}
		m = v.Message()
	}
	return dst, core.ErrInvalid
}

// appendElement appends the value of an element of a list, to which the path leads from there.
func (p fieldPath) appendElement(dst []byte, list protoreflect.FieldDescriptor, v protoreflect.Value) ([]byte, error) {
	switch {
	case list.Message() == nil:
		return appendScalar(dst, list, v), nil
	case !v.Message().IsValid():
		return dst, core.ErrMissing // a nil pointer, which no client can send
	}
	return p.appendTo(dst, v.Message())
}

// appendScalar appends a value of a field's kind.
func appendScalar(dst []byte, fd protoreflect.FieldDescriptor, v protoreflect.Value) []byte {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return append(dst, v.String()...)
	case protoreflect.BoolKind:
		return strconv.AppendBool(dst, v.Bool())
	case protoreflect.EnumKind:
		return strconv.AppendInt(dst, int64(v.Enum()), 10)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return strconv.AppendUint(dst, v.Uint(), 10)
	default:
		return strconv.AppendInt(dst, v.Int(), 10)
	}
}

// field reads one field of messages.
type field struct {
	name  string
	first bool // of the first message of several

	// compiled is for the method's message, as far as it was known beforehand. last
	// is for the message that came last and was another: another instance of the
	// descriptor is another message, and programs may make them without end.
	compiled []resolved
	last     atomic.Pointer[resolved]
}

// placeholder is how the key names the field.
func (f *field) placeholder() string {
	if f.first {
		return firstPrefix + f.name
	}
	return f.name
}

// resolved is a field's path in one message.
type resolved struct {
	message protoreflect.MessageDescriptor
	path    fieldPath
}

// errField says that a message has no such field: a fault of the rule, and not of
// the call.
var errField = errors.New("the message has no such field")

func (f *field) appendTo(dst []byte, c call) ([]byte, error) {
	m, ok := messageOf(c.req)
	switch {
	case f.first != c.first:
		return dst, fmt.Errorf("%w: %w: {%s…} is for methods whose client may send several messages, and for all of their fields", core.ErrInvalid, errField, firstPrefix)
	case !ok:
		return dst, fmt.Errorf("%w: %w: it is no protobuf message", core.ErrInvalid, errField)
	}
	md := m.Descriptor()
	for i := range f.compiled {
		if f.compiled[i].message == md {
			return f.compiled[i].path.appendTo(dst, m)
		}
	}
	last := f.last.Load()
	if last == nil || last.message != md {
		path, err := compilePath(md, f.name)
		if err != nil {
			return dst, fmt.Errorf("%w: %w: %w", core.ErrInvalid, errField, err)
		}
		last = &resolved{md, path}
		f.last.Store(last)
	}
	return last.path.appendTo(dst, m)
}

// messageOf returns what gRPC's codec takes for a message, of either API.
func messageOf(req any) (protoreflect.Message, bool) {
	switch m := req.(type) {
	case proto.Message:
		return m.ProtoReflect(), true
	case protoadapt.MessageV1:
		return protoadapt.MessageV2Of(m).ProtoReflect(), true
	}
	return nil, false
}

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
