package lockpb_test

import (
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/lockpb"
)

// This program links the option and no service that has it.
func TestProgramInWhichNothingIsLockedIsRefused(t *testing.T) {
	locks, err := core.New(memlock.New(), core.WithNamespace("test"), core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	for name, o := range map[string][]interceptor.Option{
		"no options":     nil,
		"an empty table": {interceptor.WithRules(interceptor.Rules{})},
		"empty files":    {interceptor.WithFiles(new(protoregistry.Files))},
	} {
		i, err := interceptor.NewFromProto(locks, o...)
		if i != nil || err == nil || !strings.Contains(err.Error(), "no method has the option (lockaround.v1.lock), and there are no rules") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := interceptor.NewFromProto(locks, interceptor.WithRules(interceptor.Rules{"/not.linked.Service/Method": {Key: "k"}})); err != nil {
		t.Errorf("a rule alone: %v", err)
	}
}

func TestOptionIsKnownByTheNameThatUsersWrite(t *testing.T) {
	if path := lockpb.File_lockaround_v1_lock_proto.Path(); path != "lockaround/v1/lock.proto" {
		t.Errorf("the file is imported as %s", path)
	}
	xt, err := protoregistry.GlobalTypes.FindExtensionByName("lockaround.v1.lock")
	if err != nil || xt.TypeDescriptor().Number() != 55625 || xt.TypeDescriptor().ContainingMessage().FullName() != "google.protobuf.MethodOptions" {
		t.Errorf("%v, %v", xt, err)
	}
}
