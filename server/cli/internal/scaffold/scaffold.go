// Package scaffold writes the Go modules that kinproc extension init and kinproc operator init
// begin.
package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"unicode"
)

//go:embed all:templates
var templates embed.FS

// Project is what the templates are filled with.
type Project struct {
	// Name is that of the folder and of the program.
	Name string
	// Module is the Go module path.
	Module string
	// Kinproc is the version of kinproc to require.
	Kinproc string
	// Replace is the folder of the kinproc to use instead of a released one. It is empty for those
	// who have a release.
	Replace string
	// Development says that the kinproc that writes the project is a build of that folder.
	Development bool
	// Go is the version of Go.
	Go string
	// Kubernetes is the version of the Kubernetes libraries.
	Kubernetes string
	Kind       Kind
	// Documented says that the comments of types become methods, for OpenAPI.
	Documented bool
	// ControllerRuntime says that an operator is made with controller-runtime, and Webhooks that it
	// has admission webhooks too.
	ControllerRuntime, Webhooks bool
	// Storage is where an extension API server stores objects: one of Storages, or "" for files if
	// the user of the server names a folder, and memory otherwise.
	Storage string
	// Subresource is the name of a subresource to add to the kind.
	Subresource string
}

// Versions of the modules that only some projects require. They are those of the module examples,
// whose tests run with them.
const (
	controllerRuntime = "sigs.k8s.io/controller-runtime v0.25.2"
	sqlite            = "modernc.org/sqlite v1.62.0"
)

// Required returns the modules that only some projects require, with their versions.
func (p Project) Required() []string {
	var required []string
	if p.Storage == storedInSqlite {
		required = append(required, sqlite)
	}
	if p.ControllerRuntime {
		required = append(required, controllerRuntime)
	}
	return required
}

const storedInSqlite = "sqlite"

// Storages returns the values of [Project.Storage].
func Storages() []string { return []string{"etcd", "files", "memory", storedInSqlite} }

// Kind is a kind to begin with.
type Kind struct {
	Group, Version, Kind, Plural string
	ClusterScoped                bool
}

// Lower returns the name of the kind in lower case.
func (k Kind) Lower() string { return strings.ToLower(k.Kind) }

// Package returns the name of the Go package of the kind's group: the group up to the first dot,
// without dashes.
func (k Kind) Package() string {
	name, _, _ := strings.Cut(k.Group, ".")
	return strings.ReplaceAll(name, "-", "")
}

// Import returns the name under which the Go package of the kind's types is imported.
func (k Kind) Import() string { return k.Package() + k.Version }

// HookPath returns the end of the paths at which controller-runtime serves the kind's webhooks.
func (k Kind) HookPath() string {
	return strings.ReplaceAll(k.Group, ".", "-") + "-" + k.Version + "-" + k.Lower()
}

// Variable returns the name of the function that declares the kind.
func (k Kind) Variable() string { return k.Camel() + "Kind" }

// Camel returns the name of the kind for the beginning of a Go name, such as portRule.
func (k Kind) Camel() string {
	// An acronym at the beginning is lower as a whole: httpRoute.
	upper := 1
	for upper < len(k.Kind) && unicode.IsUpper(rune(k.Kind[upper])) &&
		(upper+1 == len(k.Kind) || !unicode.IsLower(rune(k.Kind[upper+1]))) {
		upper++
	}
	return strings.ToLower(k.Kind[:upper]) + k.Kind[upper:]
}

// deepCopied is a Go type with functions that copy it.
type deepCopied struct {
	Type   string
	Object bool // implements runtime.Object
	Fields []string
}

// DeepCopied returns the types of the kind that the templates have, as deepcopy-gen orders them.
func (p Project) DeepCopied() []deepCopied {
	k := p.Kind.Kind
	return []deepCopied{
		{k, true, []string{
			"out.TypeMeta = in.TypeMeta", "in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)",
			"out.Spec = in.Spec", "out.Status = in.Status",
		}},
		{k + "List", true, []string{
			"out.TypeMeta = in.TypeMeta", "in.ListMeta.DeepCopyInto(&out.ListMeta)",
			"if in.Items != nil {\nin, out := &in.Items, &out.Items\n*out = make([]" + k + ", len(*in))\n" +
				"for i := range *in {\n(*in)[i].DeepCopyInto(&(*out)[i])\n}\n}",
		}},
		{k + "Spec", false, nil},
		{k + "Status", false, nil},
	}
}

// Files are the files of a project, by their slash-separated paths in it.
type Files map[string][]byte

// Fill fills the templates in a folder of this package. __kind__, __version__, __package__ and
// __subresource__ in the names of files stand for those of the project's kind.
func Fill(folder string, p Project) (Files, error) {
	files, root := Files{}, path.Join("templates", folder)
	err := fs.WalkDir(templates, root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fill(name, p)
		if err != nil {
			return err
		}
		to := strings.TrimSuffix(strings.TrimPrefix(name, root+"/"), ".tmpl")
		to = strings.NewReplacer("__kind__", p.Kind.Lower(), "__version__", p.Kind.Version,
			"__package__", p.Kind.Package(), "__subresource__", p.Subresource).Replace(to)
		if path.Ext(to) == ".go" {
			if content, err = format.Source(content); err != nil {
				return fmt.Errorf("%s: %w", to, err)
			}
		}
		files[to] = content
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("fill the templates: %w", err)
	}
	return files, nil
}

// fill fills one template.
func fill(name string, p Project) ([]byte, error) {
	text, err := fs.ReadFile(templates, name)
	if err != nil {
		return nil, err
	}
	parsed, err := template.New(name).Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, err
	}
	var filled bytes.Buffer
	err = parsed.Execute(&filled, p)
	return filled.Bytes(), err
}

// Write writes the files below dir, which it creates. If one of them exists, it writes none and the
// error names them. It does not follow symbolic links out of dir. If it fails, it removes what it
// has written.
func (f Files) Write(dir string) (err error) {
	created := !exists(dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create the folder of the project: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open the folder of the project: %w", err)
	}
	defer root.Close()
	var there []string
	for name := range f {
		if _, err := root.Lstat(filepath.FromSlash(name)); err == nil {
			there = append(there, name)
		}
	}
	if len(there) > 0 {
		slices.Sort(there)
		return fmt.Errorf("%s already has %s: name another folder, or move them away", dir,
			strings.Join(there, ", "))
	}
	var written []string
	defer func() {
		if err == nil {
			return
		}
		for _, name := range written {
			err = errors.Join(err, root.Remove(name))
		}
		if created {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	for name, content := range f {
		name = filepath.FromSlash(name)
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		written = append(written, name)
		_, err = file.Write(content)
		if err := errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

// Names returns the paths of the files in order.
func (f Files) Names() []string { return slices.Sorted(maps.Keys(f)) }

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
