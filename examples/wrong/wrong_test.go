package wrong

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/lockpb"
)

var update = flag.Bool("update", false, "write README.md")

const intro = `# Wrong uses, and what is said of them

What can be known wrong is an error when it is registered, and not when it is called. A test writes this page.
Here locks is an engine on memlock, and order has the fields SKU string, Price float64 and Lines []string.
`

func TestPageSaysWhatIsSaidOfWrongUses(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	before := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	defer slog.SetDefault(before)
	e, err := core.New(memlock.New(), core.WithNamespace("shop"))
	if err != nil {
		t.Fatal(err)
	}
	locks = e
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	code := sources(t)
	var page strings.Builder
	page.WriteString(intro)
	show := func(title, language, code string, text string) {
		fmt.Fprintf(&page, "\n### %s\n\n```%s\n%s\n```\n\n```text\n%s\n```\n", title, language, code, strings.TrimSpace(text))
	}
	for i, g := range groups {
		fmt.Fprintf(&page, "\n## %s\n", g.title)
		for j, c := range g.cases {
			err := c.do()
			if err == nil {
				t.Errorf("%s: %s: there is no error", g.title, c.title)
				continue
			}
			show(c.title, "go", code[i][j], err.Error())
		}
	}
	page.WriteString("\n## Directives\n")
	for _, d := range directives(t) {
		show(d.title, "go", d.line, d.says)
	}
	if *update {
		if err := os.WriteFile("README.md", []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	has, err := os.ReadFile("README.md")
	if err != nil || !bytes.Equal(has, []byte(page.String())) {
		t.Errorf("README.md is not current, write it anew with -update and read what changed: %v", err)
	}
}

// sources returns the code of the cases, as it stands in this package.
func sources(t *testing.T) [][]string {
	t.Helper()
	const file = "cases_test.go"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var all [][]string
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != "groups" {
			return true
		}
		for _, g := range spec.Values[0].(*ast.CompositeLit).Elts {
			var codes []string
			for _, c := range g.(*ast.CompositeLit).Elts[1].(*ast.CompositeLit).Elts {
				body := c.(*ast.CompositeLit).Elts[1].(*ast.FuncLit).Body
				codes = append(codes, plain(text, set, body.List))
			}
			all = append(all, codes)
		}
		return false
	})
	return all
}

// plain is the body of a case without its indentation, its last return and what only linters
// read.
func plain(text []byte, set *token.FileSet, body []ast.Stmt) string {
	at := func(p token.Pos) int { return set.Position(p).Offset }
	last := body[len(body)-1].(*ast.ReturnStmt)
	code := string(text[at(body[0].Pos()):at(last.Pos())])
	if text := string(text[at(last.Results[0].Pos()):at(last.End())]); text != "err" {
		code += text
	}
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(code)) {
		lines = append(lines, strings.TrimPrefix(strings.TrimRight(line, "\n"), "\t\t\t"))
	}
	return strings.Join(lines, "\n")
}

type directive struct{ title, line, says string }

// directives are some of the test data of lockgen, which has the message of each beside it.
func directives(t *testing.T) []directive {
	t.Helper()
	dir := filepath.Join("..", "..", "decorator", "lockgen", "testdata", "wrong")
	all := []directive{
		{title: "A template that is not quoted", line: "//lock:with stock:{sku} wait=2s"},
		{title: "A blank after the slashes", line: `// lock:with "a"`},
		{title: "Blanks around an =", line: `//lock:with "a" wait = 2s ttl= 3s mode =shared name = "a=b" limit= 2`},
		{title: "A negative wait", line: `//lock:with "a" wait=-1s`},
		{title: "A condition of another function", line: `//lock:with "stock:{sku}" when=needsLock`},
		{title: "A limit that is no number, and other options of one directive", line: `//lock:with "a" wiat=2s retries=3 wait=2 wait=1s ttl=soon ttl mode=shard limit=many norenew=true fairness=fast tokens=strong maxhold= name="" linger=1h"`},
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			name, _ := filepath.Rel(dir, file)
			golden, _ := os.ReadFile(filepath.Join(dir, filepath.Dir(name)+".golden"))
			for n, line := range strings.Split(string(source), "\n") {
				if strings.TrimSpace(line) != all[i].line {
					continue
				}
				at := fmt.Sprintf("%s:%d:", filepath.ToSlash(name), n+1)
				for said := range strings.Lines(string(golden)) {
					if strings.HasPrefix(said, at) {
						all[i].says += said
					}
				}
			}
		}
		if all[i].says == "" {
			t.Errorf("lockgen says nothing of %s", all[i].line)
		}
	}
	return all
}

func seconds(n int64) *durationpb.Duration { return &durationpb.Duration{Seconds: n} }

// fromProto compiles the option of a method Deduct, whose request has a field sku.
func fromProto(lock *lockpb.Lock) error {
	o := &descriptorpb.MethodOptions{}
	proto.SetExtension(o, lockpb.E_Lock, lock)
	file := &descriptorpb.FileDescriptorProto{
		Name: new("shop.proto"), Package: new("shop.v1"), Syntax: new("proto3"), Dependency: []string{"lockaround/v1/lock.proto"},
		MessageType: []*descriptorpb.DescriptorProto{{Name: new("DeductRequest"), Field: []*descriptorpb.FieldDescriptorProto{{
			Name: new("sku"), JsonName: new("sku"), Number: new(int32(1)), Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
		}}}},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: new("Stock"), Method: []*descriptorpb.MethodDescriptorProto{{
			Name: new("Deduct"), InputType: new(".shop.v1.DeductRequest"), OutputType: new(".shop.v1.DeductRequest"), Options: o,
		}}}},
	}
	set := &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{
		protodesc.ToFileDescriptorProto(descriptorpb.File_google_protobuf_descriptor_proto),
		protodesc.ToFileDescriptorProto(durationpb.File_google_protobuf_duration_proto),
		protodesc.ToFileDescriptorProto(lockpb.File_lockaround_v1_lock_proto), file,
	}}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return err
	}
	_, err = interceptor.NewFromProto(locks, interceptor.WithFiles(files))
	return err
}
