package interceptor_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/lockpb"
)

var update = flag.Bool("update", false, "write the golden files anew")

func seconds(n int64) *durationpb.Duration { return &durationpb.Duration{Seconds: n} }

// later adds fields to a message that its type does not have.
func later[M proto.Message](m M, numbers ...protowire.Number) M {
	var raw []byte
	for _, n := range numbers {
		raw = protowire.AppendVarint(protowire.AppendTag(raw, n, protowire.VarintType), 1)
	}
	m.ProtoReflect().SetUnknown(raw)
	return m
}

type wrongOption struct {
	name string
	lock *lockpb.Lock
}

func wrongOptions() []wrongOption {
	const key = "stock:{sku}"
	return []wrongOption{
		{"misspelt field", &lockpb.Lock{Key: "stock:{skuu}"}},
		{"misspelt field of a message", &lockpb.Lock{Key: "stock:{sku}:{order.idd}"}},
		{"Go's name of a field", &lockpb.Lock{Key: "stock:{Sku}"}},
		{"field of a string", &lockpb.Lock{Key: "stock:{sku.id}"}},
		{"message", &lockpb.Lock{Key: "stock:{order}"}},
		{"bytes", &lockpb.Lock{Key: "stock:{raw}"}},
		{"double", &lockpb.Lock{Key: "stock:{price}"}},
		{"repeated field", &lockpb.Lock{Key: "stock:{tags}"}},
		{"map", &lockpb.Lock{Key: "stock:{labels}"}},
		{"binary metadata", &lockpb.Lock{Key: "stock:{meta.trace-bin}"}},
		{"after letters of several bytes", &lockpb.Lock{Key: "größe:{x}"}},
		{"two placeholders, one of them twice", &lockpb.Lock{Key: "{skuu}:{raw}:{skuu}"}},
		{"in the second of several keys", &lockpb.Lock{Keys: []string{"order:{order.id}", "stock:{skuu}"}}},
		{"list in key", &lockpb.Lock{Key: "tag:{tags[]}"}},
		{"list that is not repeated", &lockpb.Lock{Keys: []string{"stock:{sku[]}"}}},
		{"list of bytes", &lockpb.Lock{Keys: []string{"stock:{raw[]}"}}},
		{"two lists in a template", &lockpb.Lock{Keys: []string{"{tags[]}:{labels[]}"}}},
		{"allow_empty without a list", &lockpb.Lock{Key: key, AllowEmpty: true}},
		{"list beside another fault", &lockpb.Lock{Keys: []string{"tag:{tags[]}"}, Mode: 9}},
		{"brace that is not closed", &lockpb.Lock{Key: "stock:{sku"}},
		{"nothing between placeholders", &lockpb.Lock{Key: "{sku}{i32}"}},
		{"empty", &lockpb.Lock{}},
		{"key and keys", &lockpb.Lock{Key: key, Keys: []string{key}}},
		{"empty element of keys", &lockpb.Lock{Keys: []string{key, ""}}},
		{"wait and wait_forever", &lockpb.Lock{Key: key, Wait: seconds(2), WaitForever: true}},
		{"negative wait", &lockpb.Lock{Key: key, Wait: seconds(-2)}},
		{"wait with signs that differ", &lockpb.Lock{Key: key, Wait: &durationpb.Duration{Seconds: 1, Nanos: -1}}},
		{"wait with too many nanos", &lockpb.Lock{Key: key, Wait: &durationpb.Duration{Nanos: 2e9 - 1}}},
		{"wait longer than a duration is", &lockpb.Lock{Key: key, Wait: seconds(math.MaxInt64 / int64(time.Second))}},
		{"duration of a later release", &lockpb.Lock{Key: key, Ttl: later(seconds(3), 3)}},
		{"ttl too short", &lockpb.Lock{Key: key, Ttl: &durationpb.Duration{Nanos: 1}}},
		{"ttl too long", &lockpb.Lock{Key: key, Ttl: seconds(366 * 24 * 3600)}},
		{"min_hold above max_hold", &lockpb.Lock{Key: key, MinHold: seconds(3), MaxHold: seconds(2)}},
		{"limit without SEMAPHORE", &lockpb.Lock{Key: key, Limit: 3}},
		{"SEMAPHORE without limit", &lockpb.Lock{Key: key, Mode: lockpb.Lock_SEMAPHORE}},
		{"linger of readers", &lockpb.Lock{Key: key, Mode: lockpb.Lock_SHARED, Linger: seconds(1)}},
		{"mode of a later release", &lockpb.Lock{Key: key, Mode: 9}},
		{"tokens of a later release", &lockpb.Lock{Key: key, Tokens: 9}},
		{"fairness of a later release", &lockpb.Lock{Key: key, Fairness: -1}},
		{"release of a later release", &lockpb.Lock{Key: key, Release: 9}},
		{"fields of a later release", later(&lockpb.Lock{Key: key}, 99, 100, 99)},
		{"idempotent without died", &lockpb.Lock{Key: key, Idempotent: &lockpb.Lock_Idempotent{}}},
		{"idempotent with several keys", &lockpb.Lock{Keys: []string{key, "order:{order.id}"}, Idempotent: refused(nil)}},
		{"idempotent SHARED", &lockpb.Lock{Key: key, Mode: lockpb.Lock_SHARED, Idempotent: refused(nil)}},
		{"idempotent by the client's key alone", &lockpb.Lock{Key: "{meta.idempotency-key}", Idempotent: refused(nil)}},
		{"idempotent with a keep too short", &lockpb.Lock{Key: key, Idempotent: refused(seconds(9))}},
		{"idempotent with a negative keep", &lockpb.Lock{Key: key, Idempotent: refused(seconds(-9))}},
		{"idempotent with a died of a later release", &lockpb.Lock{Key: key, Idempotent: &lockpb.Lock_Idempotent{Died: 9}}},
		{"idempotent with fields of a later release", &lockpb.Lock{Key: key, Idempotent: later(refused(nil), 99)}},
		{"many faults at once", later(&lockpb.Lock{Key: "{skuu}", Wait: seconds(-1), WaitForever: true, Mode: 9}, 99)},
	}
}

func refused(keep *durationpb.Duration) *lockpb.Lock_Idempotent {
	return &lockpb.Lock_Idempotent{Died: lockpb.Lock_Idempotent_REFUSE, Keep: keep}
}

// audited are options that were parsed by somebody who gives the lock's number to an
// option of his own.
func audited(t *testing.T, raw []byte) *descriptorpb.MethodOptions {
	t.Helper()
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("acme/v1/audit.proto"), Package: proto.String("acme.v1"), Syntax: proto.String("proto3"),
		Dependency: []string{"google/protobuf/descriptor.proto"},
		Extension: []*descriptorpb.FieldDescriptorProto{{
			Name: proto.String("audit"), Extendee: proto.String(".google.protobuf.MethodOptions"), Number: proto.Int32(optionNo),
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Type: descriptorpb.FieldDescriptorProto_TYPE_BOOL.Enum(),
		}},
	}, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	types := new(protoregistry.Types)
	if err := types.RegisterExtension(dynamicpb.NewExtensionType(file.Extensions().Get(0))); err != nil {
		t.Fatal(err)
	}
	o := &descriptorpb.MethodOptions{}
	if err := (proto.UnmarshalOptions{Resolver: types}).Unmarshal(raw, o); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestWrongOptionIsRefusedAndSaysWhatWouldBeRight(t *testing.T) {
	s := newStore(t)
	var got bytes.Buffer
	refuse := func(name string, file *descriptorpb.FileDescriptorProto, o ...interceptor.Option) {
		files, err := protodesc.FileOptions{AllowUnresolvable: true}.NewFiles(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{file}})
		if err != nil {
			t.Fatal(err)
		}
		i, err := interceptor.NewFromProto(s.locks, append(o, interceptor.WithFiles(files))...)
		if err == nil || i != nil {
			t.Errorf("%s: no error", name)
		}
		fmt.Fprintf(&got, "== %s\n%v\n", name, err)
	}
	with := func(o *descriptorpb.MethodOptions) *descriptorpb.FileDescriptorProto {
		return stockFile(t, map[string]*descriptorpb.MethodOptions{"Deduct": o})
	}
	for _, tc := range wrongOptions() {
		refuse(tc.name, with(unparsed(written(t, tc.lock))), interceptor.WithRecords(newRecords()))
	}
	refuse("idempotent without records", with(unparsed(written(t, &lockpb.Lock{Key: "stock:{sku}", Idempotent: refused(nil)}))))
	refuse("idempotent stream", stockFile(t, map[string]*descriptorpb.MethodOptions{
		"Watch": unparsed(written(t, &lockpb.Lock{Key: "stock:{sku}", Idempotent: refused(nil)})),
	}), interceptor.WithRecords(newRecords()))
	text := func(s string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, optionNo, protowire.BytesType), s)
	}
	refuse("bytes that are no Lock", with(unparsed(text("\xff"))))
	refuse("key that is no text", with(unparsed(text("\x0a\x01\xff"))))
	number := protowire.AppendVarint(protowire.AppendTag(nil, optionNo, protowire.VarintType), 1)
	refuse("number instead of a message", with(unparsed(number)))
	refuse("number of another option", with(audited(t, number)))

	missing := with(unparsed(written(t, &lockpb.Lock{Key: "stock:{sku}"})))
	missing.GetService()[0].GetMethod()[0].InputType = proto.String(".other.v1.Request")
	missing.Dependency = append(missing.Dependency, "other/v1/other.proto")
	refuse("message of a file that is missing", missing)

	golden := filepath.Join("testdata", "wrong_options.txt")
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the messages are not those of %s; run with -update and look at what changes. They are:\n%s", golden, got.Bytes())
	}
}

func TestAllFaultsOfAllOptionsAndRulesAreToldAtOnce(t *testing.T) {
	s := newStore(t)
	wrong := unparsed(written(t, &lockpb.Lock{Key: "{x}"}))
	files := stockFiles(t, map[string]*descriptorpb.MethodOptions{"Watch": wrong, "Deduct": wrong})
	defer func() {
		err, _ := recover().(error)
		if err == nil {
			t.Fatal("FromProto did not panic with an error")
		}
		lines := strings.Split(err.Error(), "\n")
		want := []string{`rule "/lockaround.test.v1.Desk/Look": `, "stock/v1/stock.proto: stock.v1.Stock.Deduct: ", "stock/v1/stock.proto: stock.v1.Stock.Watch: "}
		if len(lines) != len(want) {
			t.Fatalf("want a line for each:\n%v", err)
		}
		for i, line := range lines {
			if !strings.Contains(line, want[i]) {
				t.Errorf("line %d is %s\nwant %s", i+1, line, want[i])
			}
		}
	}()
	interceptor.FromProto(s.locks, interceptor.WithFiles(files), interceptor.WithRules(interceptor.Rules{deskLook: {Key: "{y}"}}))
}

// whole states everything that a policy can say, with values of their own.
func whole() *lockpb.Lock {
	return &lockpb.Lock{
		Key: "k", Keys: []string{"a", "b"}, Name: "n", Mode: lockpb.Lock_SEMAPHORE, Limit: 7,
		MaxWaiting: 6, Wait: seconds(1), Ttl: &durationpb.Duration{Seconds: 2, Nanos: 1}, NoRenew: true, MaxHold: seconds(3), MinHold: seconds(4), Linger: seconds(5),
		Reentrant: true, Tokens: lockpb.Lock_DURABLE, Fairness: lockpb.Lock_STRICT,
		Release: lockpb.Lock_SENT, AllowEmpty: true,
	}
}

func TestOptionSaysAllThatAPolicyCan(t *testing.T) {
	want := core.Policy{
		Key: "k", Keys: []string{"a", "b"}, Name: "n", Mode: core.Semaphore, Limit: 7,
		MaxWaiting: 6, Wait: time.Second, TTL: 2*time.Second + 1, NoRenew: true, MaxHold: 3 * time.Second, MinHold: 4 * time.Second, Linger: 5 * time.Second,
		Reentrant: true, Tokens: core.DurableTokens, Fairness: core.Strict,
		Release: core.Sent, AllowEmpty: true,
	}
	if p, faults := interceptor.PolicyOf(whole()); len(faults) > 0 || !reflect.DeepEqual(p, want) {
		t.Errorf("%+v, %v;\nwant %+v", p, faults, want)
	}
	for i := range reflect.TypeFor[core.Policy]().NumField() {
		name := reflect.TypeFor[core.Policy]().Field(i).Name
		if reflect.ValueOf(want).Field(i).IsZero() && name != "Standby" { // no call of a method stands by
			t.Errorf("core.Policy has a field %s, which no option sets", name)
		}
	}
	once := idempotent.Policy{Died: idempotent.Rerun, Keep: time.Hour, MaxBytes: 7, AnyCaller: true}
	stated := &lockpb.Lock_Idempotent{Died: lockpb.Lock_Idempotent_RERUN, Keep: seconds(3600), MaxBytes: 7, AnyCaller: true}
	if p, faults := interceptor.OnceOf(stated); len(faults) > 0 || !reflect.DeepEqual(p, once) {
		t.Errorf("%+v, %v;\nwant %+v", p, faults, once)
	}
	for i := range reflect.TypeFor[idempotent.Policy]().NumField() {
		name := reflect.TypeFor[idempotent.Policy]().Field(i).Name
		if reflect.ValueOf(once).Field(i).IsZero() && name != "Seal" && name != "Open" { // functions
			t.Errorf("idempotent.Policy has a field %s, which no option sets", name)
		}
	}
	for name, tc := range map[string]struct {
		lock *lockpb.Lock
		want core.Policy
	}{
		"nothing":          {&lockpb.Lock{}, core.Policy{}},
		"zero durations":   {&lockpb.Lock{Wait: seconds(0), Ttl: seconds(0), MaxHold: seconds(0), MinHold: seconds(0), Linger: seconds(0)}, core.Policy{Wait: core.TryOnce, MaxHold: core.Forever}},
		"wait_forever":     {&lockpb.Lock{WaitForever: true}, core.Policy{Wait: core.Forever}},
		"what comes first": {&lockpb.Lock{Mode: lockpb.Lock_EXCLUSIVE, Fairness: lockpb.Lock_BALANCED, Release: lockpb.Lock_CONFIRMED}, core.Policy{}},
		"SHARED":           {&lockpb.Lock{Mode: lockpb.Lock_SHARED}, core.Policy{Mode: core.Shared}},
		"CLOCK":            {&lockpb.Lock{Tokens: lockpb.Lock_CLOCK}, core.Policy{Tokens: core.ClockTokens}},
		"the longest wait": {&lockpb.Lock{Wait: &durationpb.Duration{Seconds: math.MaxInt64/int64(time.Second) - 1, Nanos: 999999999}}, core.Policy{Wait: math.MaxInt64/time.Second*time.Second - 1}},
	} {
		if p, faults := interceptor.PolicyOf(tc.lock); len(faults) > 0 || !reflect.DeepEqual(p, tc.want) {
			t.Errorf("%s: %+v, %v; want %+v", name, p, faults, tc.want)
		}
	}
}

// everyLock are options of all kinds, right and wrong.
func everyLock() []*lockpb.Lock {
	all := []*lockpb.Lock{whole(), {Key: "stock:{sku}"}}
	for _, w := range wrongOptions() {
		all = append(all, w.lock)
	}
	return all
}
