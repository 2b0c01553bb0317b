package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/drivertest/counts"
)

const tree = "../../.."

// outside is a module of somebody else, which fetches what is published.
type outside struct {
	*testing.T
	folder string
	env    []string
}

// newOutside publishes the tree in those versions, and returns a module that fetches them.
func newOutside(t *testing.T, versions ...string) *outside {
	t.Helper()
	proxy := t.TempDir()
	for _, v := range versions {
		if err := publish(tree, v, proxy, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	return fetching(t, proxy, versions...)
}

// fetching is a module without any requirement, which fetches those versions from a proxy.
func fetching(t *testing.T, proxy string, versions ...string) *outside {
	t.Helper()
	o := &outside{T: t, folder: t.TempDir()}
	before := strings.TrimSpace(o.run("go", "env", "GOPROXY"))
	cached := strings.TrimSpace(o.run("go", "env", "GOMODCACHE"))
	o.env = append(os.Environ(), "GOWORK=off", o.also("GOFLAGS", " ", "-modcacherw -mod=mod"), "GOPROXY=file://"+proxy+","+before, o.also("GONOSUMDB", ",", root+"/*,"+root))
	t.Cleanup(func() { // nobody fetches these versions again
		for _, v := range versions {
			for _, m := range modules {
				path := filepath.Join(root, m)
				_ = os.RemoveAll(filepath.Join(cached, path+"@"+v))
				files, _ := filepath.Glob(filepath.Join(cached, "cache", "download", path, "@v", v+".*"))
				for _, f := range files {
					_ = os.Remove(f)
				}
			}
		}
	})
	o.run("go", "mod", "init", "example.com/shop")
	return o
}

// version is one that nobody has published.
func version(minor int) string {
	return fmt.Sprintf("v0.%d.0-candidate.%d", minor, time.Now().UnixNano())
}

func (o *outside) run(words ...string) string {
	o.Helper()
	cmd := exec.Command(words[0], words[1:]...)
	var complaints bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stderr = o.folder, o.env, &complaints
	said, err := cmd.Output()
	if err != nil {
		o.Fatalf("%s: %v\n%s%s", strings.Join(words, " "), err, said, &complaints)
	}
	return string(said)
}

// also adds to what the go command goes by already.
func (o *outside) also(name, between, more string) string {
	o.Helper()
	return name + "=" + strings.TrimPrefix(strings.TrimSpace(o.run("go", "env", name))+between+more, between)
}

func (o *outside) write(name, text string) {
	o.Helper()
	name = filepath.Join(o.folder, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		o.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		o.Fatal(err)
	}
}

const shop = `package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/middleware"
)

func main() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"))
	if err != nil {
		panic(err)
	}
	defer locks.Close()
	deduct, err := decorator.New(locks, core.Policy{Name: "stock", Key: "stock:{SKU}"}, func(_ context.Context, in struct{ SKU string }) (string, error) {
		return "deducted " + in.SKU, nil
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(deduct(context.Background(), struct{ SKU string }{"A1"}))

	gin.SetMode(gin.ReleaseMode)
	lock, err := middleware.New(locks, core.Policy{Name: "order", Key: "order:{path.id}"})
	if err != nil {
		panic(err)
	}
	router := gin.New()
	router.POST("/orders/:id", lock, func(c *gin.Context) { c.String(http.StatusOK, "order %s", c.Param("id")) })
	w := httptest.NewRecorder()
	router.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/orders/7", nil))
	fmt.Println(w.Code, w.Body)
}
`

// TestStrangersFetchAndRunWhatIsPublished has a program of another module for each package,
// and runs the commands of the documentation.
func TestStrangersFetchAndRunWhatIsPublished(t *testing.T) {
	if testing.Short() || counts.Of(t, "strangers", 0, 0) == 0 {
		t.Skip("publishes and builds all modules, as each release does: LOCKAROUND_COUNTS=strangers=1")
	}
	v := version(0)
	o := newOutside(t, v)
	all, err := exported(tree, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("found %d packages in the tree", len(all))
	}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		o.write(filepath.Join(strings.TrimPrefix(path, root), "main.go"), fmt.Sprintf("package main\n\nimport _ %q\n\nfunc main() {}\n", path))
	}
	o.write("shop/main.go", shop)
	for _, m := range modules {
		if all[filepath.Join(root, m)] != nil || m == "." {
			o.run("go", "get", filepath.Join(root, m)+"@"+v)
		}
	}
	o.run("go", "mod", "tidy")
	o.run("go", "build", "-o", os.DevNull, "./...")
	if got, want := o.run("go", "run", "./shop"), "deducted A1 <nil>\n200 order 7\n"; got != want {
		t.Errorf("the program in the shop said %q, want %q", got, want)
	}
	if got := o.run("go", "list", "-m", root); got != root+" "+v+"\n" {
		t.Errorf("the shop has %s", got)
	}

	tool := root + "/decorator/lockgen"
	o.write("stock/stock.go", "// Package stock is somebody's.\npackage stock\n\nimport \"context\"\n\n// Stock deducts.\ntype Stock interface {\n\t//lockaround:lock key=\"stock:{sku}\"\n\tDeduct(ctx context.Context, sku string) error\n}\n")
	o.run("go", "run", tool+"@"+v, "./stock")
	o.run("go", "get", "-tool", tool+"@"+v)
	o.run("go", "tool", "lockgen", "-check", "./stock")
	o.run("go", "build", "./stock")
	vet := root + "/decorator/lockvet"
	o.run("go", "get", "-tool", vet+"@"+v)
	o.run("go", "vet", "-vettool="+strings.TrimSpace(o.run("go", "tool", "-n", "lockvet")), "./stock")
	if got := o.run("go", "run", root+"/examples/stock@"+v); got == "" {
		t.Error("the example said nothing")
	}
}

// TestDriverBringsTheCoreOfItsRelease keeps users from a driver beside a core that it was not
// tested with.
func TestDriverBringsTheCoreOfItsRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("publishes all modules twice")
	}
	older, newer := version(1), version(2)
	o := newOutside(t, older, newer)
	o.run("go", "get", root+"@"+older)
	for _, m := range modules[1:] {
		path := filepath.Join(root, m)
		t.Run(m, func(t *testing.T) {
			o := &outside{t, o.folder, o.env}
			for _, v := range []string{older, newer} {
				o.run("go", "get", path+"@"+v)
				if got := o.run("go", "list", "-m", root); got != root+" "+v+"\n" {
					t.Errorf("with %s@%s there is %s", path, v, got)
				}
			}
			o.run("go", "get", path+"@none", root+"@"+older)
		})
	}
}

func TestVersionsAreRefusedThatTheGoCommandWouldRefuse(t *testing.T) {
	for _, v := range []string{"", "0.1.0", "v0.1", "v1", "latest", "v0.1.0+meta", "v0.01.0"} {
		if err := publish(tree, v, t.TempDir(), io.Discard); err == nil {
			t.Errorf("published %q", v)
		}
	}
}

// TestReplacedModulesAreNotPublished keeps `go run …@version` usable, which refuses them.
func TestReplacedModulesAreNotPublished(t *testing.T) {
	file := filepath.Join(t.TempDir(), "go.mod")
	if err := os.WriteFile(file, []byte("module example.com/a\n\nrequire "+root+" v0.0.0\n\nreplace "+root+" => ../b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := require(file, "v0.1.0"); err == nil || !strings.Contains(err.Error(), "replaces "+root) {
		t.Errorf("said %v", err)
	}
}

func TestAPIChangesAreToldApart(t *testing.T) {
	var said bytes.Buffer
	before, after := changed(t, "func Kept() {}\n\nfunc Gone() {}\n"), changed(t, "func Kept() {}\n\nfunc Added() {}\n")
	if err := compare(before, after, &said); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"- " + root + "/core: Gone: removed\n", "+ " + root + "/core: Added: added\n"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("said %q, without %q", &said, want)
		}
	}
	if strings.Contains(said.String(), "Kept") {
		t.Errorf("said %q", &said)
	}
}

// TestModuleThatTheLastReleaseDidNotHaveIsNew keeps a release possible that brings a module.
func TestModuleThatTheLastReleaseDidNotHaveIsNew(t *testing.T) {
	var said bytes.Buffer
	before, after := changed(t, ""), changed(t, "")
	m := modules[len(modules)-1]
	if err := os.RemoveAll(filepath.Join(before, m)); err != nil {
		t.Fatal(err)
	}
	if err := compare(before, after, &said); err != nil {
		t.Fatal(err)
	}
	if got, want := said.String(), "+ "+root+"/"+m+": the package is new\n"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
}

// changed is a tree of modules whose core exports that.
func changed(t *testing.T, source string) string {
	t.Helper()
	top := t.TempDir()
	t.Setenv("GOWORK", "off")
	for _, m := range modules {
		folder, text := filepath.Join(top, m), "package core\n"
		if m == "." {
			folder, text = filepath.Join(top, "core"), "package core\n\n"+source
		}
		path := filepath.Join(root, m)
		for name, content := range map[string]string{
			filepath.Join(top, m, "go.mod"):  "module " + path + "\n\ngo 1.26.0\n",
			filepath.Join(folder, "core.go"): text,
		} {
			if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return top
}
