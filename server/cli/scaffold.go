package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/cli/internal/scaffold"
)

// scaffolding is a project to write.
type scaffolding struct{ project scaffold.Project }

func (o *scaffolding) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.project.Module, "module", "", "path of the Go module; example.com/NAME if empty")
	// Nobody but a developer of kinproc needs it.
	f.StringVar(&o.project.Replace, "kinproc-replace", "", "folder of the kinproc to use")
	_ = f.MarkHidden("kinproc-replace") // the flag exists
	o.addKindFlags(f)
}

func (o *scaffolding) addKindFlags(f *pflag.FlagSet) {
	k := &o.project.Kind
	f.StringVar(&k.Group, "group", "", "API group of the kind; NAME.example.com if empty")
	f.StringVar(&k.Version, "version", "", "version of the kind; v1 if empty")
	f.StringVar(&k.Kind, "kind", "", "name of the kind, such as PortRule; made from NAME if empty")
	f.StringVar(&k.Plural, "plural", "", "name of the resource; made from the kind if empty")
}

func (o *scaffolding) addScopeFlag(f *pflag.FlagSet) {
	f.BoolVar(&o.project.Kind.ClusterScoped, "cluster-scoped", false, "the kind is cluster-scoped")
}

// complete fills in what follows from the name of the project and from the kind.
func (o *scaffolding) complete(name string) {
	p, k := &o.project, &o.project.Kind
	p.Name = name
	p.Module = cmp.Or(p.Module, "example.com/"+name)
	k.Group = cmp.Or(k.Group, name+".example.com")
	k.Version = cmp.Or(k.Version, "v1")
	k.Kind = cmp.Or(k.Kind, scaffold.CamelCase(name))
	resource, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: k.Kind})
	k.Plural = cmp.Or(k.Plural, resource.Resource)
}

// begin writes a project into a new folder of its name, and says how to go on.
func (o *scaffolding) begin(
	ctx context.Context, s streams,
	files func(scaffold.Project) (scaffold.Files, error), name, next string,
) error {
	o.complete(filepath.Base(name))
	p := &o.project
	if err := p.Validate(); err != nil {
		return usageError{err}
	}
	if err := o.require(server.Version()); err != nil {
		return err
	}
	filled, err := files(*p)
	if err != nil {
		return err
	}
	if err := filled.Write(name); err != nil {
		return err
	}
	for _, file := range filled.Names() {
		fmt.Fprintln(s.out, filepath.Join(name, filepath.FromSlash(file)))
	}
	for _, args := range [][]string{{"mod", "tidy"}, {"generate", "./..."}} {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = name, s.err, s.err
		if err := cmd.Run(); err != nil {
			fmt.Fprintf(s.err, "kinproc: warning: go %s: %v; run it in %s before you go on\n",
				strings.Join(args, " "), err, name)
			return nil
		}
	}
	fmt.Fprintf(s.out, "\nNow:\n\n  cd %s\n  %s\n", name, next)
	return nil
}

// released matches the versions of kinproc that the go command can download.
var released = regexp.MustCompile(`^v[0-9.]+(-[0-9A-Za-z.-]+)?$`)

// require sets the versions that the project requires. This is kinproc's own version.
func (o *scaffolding) require(version string) (err error) {
	p := &o.project
	p.Kubernetes = "v0." + strings.TrimPrefix(server.KubernetesVersion, "v1.")
	p.Go = strings.TrimPrefix(runtime.Version(), "go")
	if p.Replace != "" {
		p.Kinproc = "v0.0.0"
		p.Replace, err = filepath.Abs(p.Replace)
		return err
	}
	if released.MatchString(version) && semver.IsValid(version) {
		p.Kinproc = version
		return nil
	}
	p.Kinproc, p.Replace, p.Development = "v0.0.0", ownSource(), true
	if p.Replace == "" {
		return fmt.Errorf("this kinproc is a development build (%s), which no module can require, and "+
			"its source is gone: install a release, or name a source with --kinproc-replace", version)
	}
	return nil
}

// ownSource returns the folder of the source of this program, as the compiler saw it. It is empty
// if that is not there, or if the program was built with -trimpath.
func ownSource() string {
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Dir(filepath.Dir(filepath.Dir(file)))
	data, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if !filepath.IsAbs(root) || err != nil || modfile.ModulePath(data) != ownModule {
		return ""
	}
	return root
}

// ownModule is the path of the module of this program.
const ownModule = "github.com/kinproc/kinproc"

// oneName requires one argument.
func oneName(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageError{fmt.Errorf("%s requires the name of a new folder (see %s --help)",
			cmd.CommandPath(), cmd.CommandPath())}
	}
	return nil
}

// atMostOneFolder allows one argument, a folder that exists.
func atMostOneFolder(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usageError{fmt.Errorf("%s takes one folder (see %s --help)",
			cmd.CommandPath(), cmd.CommandPath())}
	}
	if info, err := os.Stat(folderOf(args)); err != nil {
		return usageError{err}
	} else if !info.IsDir() {
		return usageError{errors.New(folderOf(args) + " is not a folder")}
	}
	return nil
}

// folderOf returns the folder that the arguments name, or the working directory.
func folderOf(args []string) string {
	if len(args) == 0 {
		return "."
	}
	return args[0]
}
