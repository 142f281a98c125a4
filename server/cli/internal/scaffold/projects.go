package scaffold

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kinproc/kinproc/server/internal/plainfile"
)

const (
	groupsFile   = "kinds/groups.go"
	deepCopyFile = "zz_generated.deepcopy.go"
	docsFile     = "zz_generated.docs.go"
)

// Operator returns the files of an operator of one kind.
func Operator(p Project) (Files, error) {
	folders := []string{"program", "operator", "client-go"}
	if p.ControllerRuntime {
		folders[2] = "controller-runtime"
	}
	if p.Webhooks {
		folders = append(folders, "webhooks")
	}
	files := Files{}
	if err := files.fill(p, folders...); err != nil {
		return nil, err
	}
	if err := files.addTypes(p); err != nil {
		return nil, err
	}
	register := p.inVersion("register.go") // to which nobody adds
	var err error
	files[register], err = format.Source(bytes.Replace(files[register],
		[]byte(mark("types")), nil, 1))
	return files, err
}

// Extension returns the files of an extension API server with one kind.
func Extension(p Project) (Files, error) {
	p.Documented = true
	files := Files{}
	storage := path.Join("storage", cmp.Or(p.Storage, "default"))
	if err := files.fill(p, "program", "extension", storage); err != nil {
		return nil, err
	}
	if err := files.addKind(p); err != nil {
		return nil, err
	}
	return files, nil
}

// AddKind adds a kind to the extension API server in dir. If it fails, it changes nothing.
func AddKind(dir string, k Kind) (added []string, err error) {
	p := Project{Kind: k, Documented: true}
	existing, err := p.open(dir, groupsFile, p.inVersion("register.go"), p.inVersion(deepCopyFile))
	if err != nil {
		return nil, err
	}
	edited := maps.Clone(existing)
	if err := edited.addKind(p); err != nil {
		return nil, err
	}
	if declaration := p.declaration(); exists(filepath.Join(dir, filepath.FromSlash(declaration))) {
		return nil, fmt.Errorf("%s already declares a kind %s: to serve that kind in another version "+
			"too, see kind.ServedAs", declaration, k.Kind)
	}
	return edited.update(dir, existing)
}

// open reads files of the extension API server in dir, whose module is then the project's. Those
// that do not exist are left out, except for the list of groups.
func (p *Project) open(dir string, names ...string) (Files, error) {
	const hint = "name the folder of a project that kinproc extension init wrote"
	data, err := plainfile.Read(filepath.Join(dir, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, hint)
	}
	p.Module = modfile.ModulePath(data)
	files := Files{}
	for _, name := range names {
		data, err := plainfile.Read(filepath.Join(dir, filepath.FromSlash(name)))
		if err == nil {
			files[name] = data
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if !exists(filepath.Join(dir, filepath.FromSlash(groupsFile))) {
		return nil, fmt.Errorf("%s has no %s: %s", dir, groupsFile, hint)
	}
	return files, nil
}

// update writes the files below dir that differ from the existing ones, and returns their names.
// Those that are new must not exist.
func (f Files) update(dir string, existing Files) ([]string, error) {
	created, changed := Files{}, Files{}
	for name, content := range f {
		switch old, ok := existing[name]; {
		case !ok:
			created[name] = content
		case !bytes.Equal(old, content):
			changed[name] = content
		}
	}
	if err := created.Write(dir); err != nil {
		return nil, err
	}
	for name, content := range changed {
		if err := replace(filepath.Join(dir, filepath.FromSlash(name)), content); err != nil {
			return nil, err
		}
	}
	maps.Copy(created, changed)
	return created.Names(), nil
}

// replace replaces the content of a file at once.
func replace(file string, content []byte) error {
	if err := os.WriteFile(file+".new", content, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// inVersion returns the path of a file in the folder of the kind's group and version.
func (p Project) inVersion(file string) string {
	return path.Join("api", p.Kind.Package(), p.Kind.Version, file)
}

// declaration returns the path of the file that declares the kind.
func (p Project) declaration() string { return path.Join("kinds", p.Kind.Lower()+".go") }

// addKind adds a kind to the files of an extension API server.
func (f Files) addKind(p Project) (err error) {
	if err := f.addTypes(p); err != nil {
		return err
	}
	if err := f.fill(p, "kind"); err != nil {
		return err
	}
	if f[groupsFile], err = addToGroups(f[groupsFile], p); err != nil {
		return fmt.Errorf("%s: %w", groupsFile, err)
	}
	return nil
}

// addTypes adds the Go types of a kind.
func (f Files) addTypes(p Project) error {
	register := p.inVersion("register.go")
	if f[register] == nil {
		if err := f.fill(p, "version"); err != nil {
			return err
		}
	} else if !bytes.Contains(f[register], fmt.Appendf(nil, "Group: %q", p.Kind.Group)) {
		return fmt.Errorf("%s is for another API group than %s: choose a group whose name begins with "+
			"another word", register, p.Kind.Group)
	}
	if bytes.Contains(f[register], fmt.Appendf(nil, "&%s{}", p.Kind.Kind)) {
		return fmt.Errorf("%s already has the kind %s", register, p.Kind.Kind)
	}
	if err := f.fill(p, "types"); err != nil {
		return err
	}
	copies, err := fill("templates/deepcopy.go.tmpl", p)
	if err != nil {
		return err
	}
	generated := p.inVersion(deepCopyFile)
	if f[generated], err = format.Source(append(f[generated], copies...)); err != nil {
		return fmt.Errorf("%s: %w", generated, err)
	}
	if f[register], err = insert(f[register], "types",
		fmt.Sprintf("&%s{}, &%sList{},", p.Kind.Kind, p.Kind.Kind)); err != nil {
		return fmt.Errorf("%s: %w", register, err)
	}
	return nil
}

// fill adds the files of folders of templates.
func (f Files) fill(p Project, folders ...string) error {
	for _, folder := range folders {
		files, err := Fill(folder, p)
		if err != nil {
			return err
		}
		maps.Copy(f, files)
	}
	return nil
}

// addToGroups adds a kind, and its group and its version if they are new, to the list of groups.
func addToGroups(content []byte, p Project) (_ []byte, err error) {
	k := p.Kind
	imported := fmt.Sprintf("%s %q", k.Import(), path.Join(p.Module, "api", k.Package(), k.Version))
	version := fmt.Sprintf("{Version: %s.GroupVersion.Version, AddToScheme: %s.AddToScheme},",
		k.Import(), k.Import())
	known := bytes.Contains(content, []byte(imported))
	if !known {
		if content, err = insert(content, "imports", imported); err != nil {
			return nil, err
		}
	}
	switch {
	case !hasMark(content, "kinds "+k.Group):
		content, err = insert(content, "groups", fmt.Sprintf(`{
Name: %s.GroupVersion.Group,
Versions: []kind.GroupVersion{
%s
// +kinproc:versions %s
},
Kinds: []kind.Declaration{
// +kinproc:kinds %s
},
},`, k.Import(), version, k.Group, k.Group))
	case !known:
		content, err = insert(content, "versions "+k.Group, version)
	}
	if err != nil {
		return nil, err
	}
	return insert(content, "kinds "+k.Group, k.Variable()+"(),")
}

func mark(name string) string { return "// +kinproc:" + name }

func hasMark(content []byte, name string) bool {
	return bytes.Contains(content, []byte(mark(name)+"\n"))
}

// insert inserts text into a Go file in front of a mark.
func insert(content []byte, name, text string) ([]byte, error) {
	if !hasMark(content, name) {
		return nil, fmt.Errorf("the mark %q is missing, so add this by hand: %s", mark(name), text)
	}
	return format.Source(bytes.Replace(content, []byte(mark(name)+"\n"),
		[]byte(text+"\n"+mark(name)+"\n"), 1))
}

// Document writes the comments of the Go types in dir as methods SwaggerDoc, by which the server
// describes them in OpenAPI.
func Document(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	var name string
	var types []runtime.KubeTypes
	for _, file := range files {
		base := filepath.Base(file)
		if strings.HasPrefix(base, "zz_") || strings.HasSuffix(base, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly)
		if err != nil {
			return err
		}
		name = parsed.Name.Name
		documented, err := runtime.ParseDocumentationFrom(file)
		if err != nil {
			return fmt.Errorf("read the comments in %s: %w", file, err)
		}
		types = append(types, documented...)
	}
	if len(types) == 0 {
		return fmt.Errorf("%s has no Go types with comments", dir)
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "// Code generated by kinproc extension docs. DO NOT EDIT.\n\n"+
		"package %s\n\n", name)
	if err := runtime.WriteSwaggerDocFunc(types, &text); err != nil {
		return fmt.Errorf("document the types in %s: %w", dir, err)
	}
	content, err := format.Source(text.Bytes())
	if err != nil {
		return fmt.Errorf("document the types in %s: %w", dir, err)
	}
	return replace(filepath.Join(dir, docsFile), content)
}
