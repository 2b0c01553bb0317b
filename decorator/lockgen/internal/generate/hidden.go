package generate

import (
	"go/types"
	"strings"
)

// canWrite reports whether this package can write a type down. It can for all in the
// signatures that it declares, but perhaps not for that of another package's field.
func (s *source) canWrite(t types.Type) bool {
	switch t := t.(type) {
	case *types.Alias:
		return s.canName(t.Obj(), t.TypeArgs())
	case *types.Named:
		return s.canName(t.Obj(), t.TypeArgs())
	case *types.Basic, *types.TypeParam:
		return true
	case *types.Pointer:
		return s.canWrite(t.Elem())
	case *types.Slice:
		return s.canWrite(t.Elem())
	case *types.Array:
		return s.canWrite(t.Elem())
	}
	return false // it would be a long way to a value from any other
}

func (s *source) canName(name *types.TypeName, args *types.TypeList) bool {
	if p := name.Pkg(); p != nil && p != s.Types && !(name.Exported() && mayImport(s.PkgPath, p.Path())) {
		return false
	}
	for t := range args.Types() {
		if !s.canWrite(t) {
			return false
		}
	}
	return true
}

// mayImport is Go's rule about internal and vendored packages.
func mayImport(from, path string) bool {
	for _, element := range []string{"internal", "vendor"} {
		i := strings.LastIndex("/"+path+"/", "/"+element+"/")
		if i < 0 {
			continue
		}
		if parent := strings.TrimSuffix(path[:i], "/"); from != parent && !strings.HasPrefix(from+"/", parent+"/") {
			return false
		}
	}
	return true
}
