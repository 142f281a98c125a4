package scaffold_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/cli/internal/scaffold"
)

const repository = "../../../.."

// project returns a project with a kind Rule.
func project(t *testing.T, name string) scaffold.Project {
	t.Helper()
	kinproc, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	return scaffold.Project{
		Name: name, Module: "example.com/all/" + name, Kinproc: "v0.0.0", Replace: kinproc,
		Go:         strings.TrimPrefix(runtime.Version(), "go"),
		Kubernetes: "v0." + strings.TrimPrefix(server.KubernetesVersion, "v1."),
		Kind: scaffold.Kind{
			Group: "net.example.com", Version: "v1", Kind: "Rule", Plural: "rules",
		},
	}
}

// write writes a project into a folder of its name in dir.
func write(
	t *testing.T, dir string, p scaffold.Project, files func(scaffold.Project) (scaffold.Files, error),
) string {
	t.Helper()
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	filled, err := files(p)
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(dir, p.Name)
	if err := filled.Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The projects become one module here, so that each dependency is compiled once.
func TestEveryVariantCompiles(t *testing.T) {
	t.Parallel()
	all := t.TempDir()
	for _, storage := range append(scaffold.Storages(), "") {
		p := project(t, "extension"+storage)
		p.Storage = storage
		dir := write(t, all, p, scaffold.Extension)
		for _, subresource := range []string{"scale", "approval", "dry-run", "phase"} {
			if _, err := scaffold.AddSubresource(dir, p.Kind, subresource); err != nil {
				t.Errorf("%s: subresource %s: %v", p.Name, subresource, err)
			}
		}
	}
	for name, configure := range map[string]func(*scaffold.Project){
		"operator": func(*scaffold.Project) {},
		"manager":  func(p *scaffold.Project) { p.ControllerRuntime = true },
		"webhooks": func(p *scaffold.Project) { p.ControllerRuntime, p.Webhooks = true, true },
	} {
		p := project(t, name)
		configure(&p)
		write(t, all, p, scaffold.Operator)
	}
	joinModules(t, all)
	goCommand(t, all, "vet", "./...")
	goCommand(t, all, "test", "-vet=off", "./extensionsqlite")
}

// joinModules makes one module of the modules in the folders of dir.
func joinModules(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	joined := new(modfile.File)
	if err := joined.AddModuleStmt("example.com/all"); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := modfile.Parse(file, data, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range parsed.Require {
			if err := joined.AddRequire(r.Mod.Path, r.Mod.Version); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range parsed.Replace {
			if err := joined.AddReplace(r.Old.Path, r.Old.Version, r.New.Path, r.New.Version); err != nil {
				t.Fatal(err)
			}
		}
		if err := joined.AddGoStmt(parsed.Go.Version); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	data, err := joined.Format()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	// The examples depend on all that the projects do.
	sums, err := os.ReadFile(filepath.Join(repository, "examples", "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600); err != nil {
		t.Fatal(err)
	}
}

func goCommand(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestVersionsAreThoseOfTheExamples(t *testing.T) {
	t.Parallel()
	file := filepath.Join(repository, "examples", "go.mod")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	examples, err := modfile.Parse(file, data, nil)
	if err != nil {
		t.Fatal(err)
	}
	required := scaffold.Project{Storage: "sqlite", ControllerRuntime: true}.Required()
	if len(required) != 2 {
		t.Errorf("required are %v", required)
	}
	for _, r := range required {
		if !slices.ContainsFunc(examples.Require, func(e *modfile.Require) bool {
			return e.Mod.Path+" "+e.Mod.Version == r
		}) {
			t.Errorf("%s does not require %s", file, r)
		}
	}
}

func TestSubresourcesThatCannotBeAdded(t *testing.T) {
	t.Parallel()
	p := project(t, "rules")
	dir := write(t, t.TempDir(), p, scaffold.Extension)
	declaration := filepath.Join(dir, "kinds", "rule.go")
	if _, err := scaffold.AddSubresource(dir, p.Kind, "approval"); err != nil {
		t.Fatal(err)
	}
	edit := func(file, old, replacement string) {
		t.Helper()
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), old) {
			t.Fatalf("%s has no %q", file, old)
		}
		data = []byte(strings.Replace(string(data), old, replacement, 1))
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	edit(filepath.Join(dir, "api", "net", "v1", "rule_types.go"), "Phase string", "Phase []string")
	edit(declaration, "// +kinproc:scale", "")
	before := contents(t, dir)
	other := p.Kind
	other.Version = "v2"
	for name, test := range map[string]struct {
		kind              scaffold.Kind
		subresource, want string
	}{
		"there already": {p.Kind, "approval", "kinds/rule.go already has the subresource approval"},
		"status":        {p.Kind, "status", "already has the subresource status"},
		"another type": {p.Kind, "phase",
			"api/net/v1/rule_types.go: the field Phase of RuleStatus is of the type []string"},
		"no mark":         {p.Kind, "scale", `no line "// +kinproc:scale": put it where Scale: ruleScale(),`},
		"another version": {other, "dry-run", "declares no kind Rule of net.example.com/v2"},
	} {
		if _, err := scaffold.AddSubresource(dir, test.kind, test.subresource); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	if after := contents(t, dir); !maps.Equal(before, after) {
		t.Error("a refused subresource has changed files")
	}
}

// contents returns the contents of the files below dir.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
