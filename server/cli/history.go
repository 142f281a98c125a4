package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	xterm "golang.org/x/term"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/kinproc/kinproc/chain/history"
	"github.com/kinproc/kinproc/server/cli/internal/output"
	"github.com/kinproc/kinproc/server/cli/internal/sandbox"
)

// pastVersions is which versions kinproc history shows, and how.
type pastVersions struct {
	kubeconfig, namespace, output string
	allNamespaces, follow         bool
	options                       history.Options
	colors                        bool
}

func newHistoryCmd(s streams) *cobra.Command {
	var o pastVersions
	cmd := &cobra.Command{
		Use:   "history [TYPE [NAME] | TYPE/NAME]",
		Short: "Show the versions of objects, who wrote them, and what changed",
		Long: `Show the versions of an object that etcd still keeps: when they were written, by
whom, and what changed. Without a name, show those of all objects of a type;
without a type, those of all objects in the namespace, in the order in which
they were written. Deleted objects have a history too.

Who wrote a version is known if it was written through this server, and also
after a restart unless etcd is an external one. The data of Secrets is not shown.

  kinproc history deployment web
  kinproc history deploy/web --at 1234
  kinproc history pods -l app=web --follow
  kinproc history -n shop`,
		Args: func(cmd *cobra.Command, args []string) error {
			typ, name := typeAndName(args)
			if err := output.CheckFormat(o.output, "json", "yaml"); err != nil {
				return usageError{err}
			}
			switch {
			case len(args) > 2 || len(args) == 2 && strings.Contains(args[0], "/"):
				return usageError{errors.New("history takes a type and a name, both optional " +
					"(see kinproc history --help)")}
			case len(args) == 1 && strings.HasSuffix(args[0], "/"):
				return usageError{fmt.Errorf("%s has no name after the slash", args[0])}
			case name != "" && o.options.Labels != "":
				return usageError{errors.New("a name cannot be provided when a selector is specified")}
			case o.options.At != 0 && (name == "" || o.follow):
				return usageError{errors.New("--at requires one object, and cannot be used with --follow")}
			case o.allNamespaces && (typ == "" || name != ""):
				return usageError{errors.New("--all-namespaces requires a type without a name")}
			case o.options.Limit < 1 || o.options.Limit > history.MaxLimit:
				return usageError{fmt.Errorf("--limit: %d is not between 1 and %d", o.options.Limit,
					history.MaxLimit)}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			config, namespace, err := sandbox.ClientConfigIn(o.kubeconfig)
			if err != nil {
				return err
			}
			o.namespace = cmp.Or(o.namespace, namespace, "default")
			path, err := o.path(config, args)
			if err != nil {
				return err
			}
			ctx, stop := untilInterrupted(cmd.Context())
			defer stop()
			o.colors = colorful(s.out)
			return o.run(ctx, s, config, path)
		},
	}
	addKubeconfigFlag(cmd, &o.kubeconfig)
	f := cmd.Flags()
	f.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the objects; that of the "+
		"kubeconfig if empty")
	f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "show objects of all namespaces")
	f.StringVarP(&o.options.Labels, "selector", "l", "", "label selector of the objects")
	f.Int64Var(&o.options.At, "at", 0, "show the object as it was at this revision")
	f.IntVar(&o.options.Limit, "limit", history.DefaultLimit, "number of versions, the newest ones")
	f.BoolVarP(&o.follow, "follow", "f", false, "show new versions until interrupted")
	f.StringVarP(&o.output, "output", "o", "", "json or yaml; a table if empty")
	return cmd
}

// typeAndName returns the type and the name of the arguments, each of which may be empty.
func typeAndName(args []string) (typ, name string) {
	switch len(args) {
	case 0:
		return "", ""
	case 1:
		typ, name, _ = strings.Cut(args[0], "/")
		return typ, name
	}
	return args[0], args[1]
}

// path returns the path of the objects in the API.
func (o *pastVersions) path(config *rest.Config, args []string) (string, error) {
	typ, name := typeAndName(args)
	if typ == "" {
		o.options.Contents = true
		return history.PathOf(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "",
			o.namespace), nil
	}
	setLogging(0) // what discovery complains about is in its error too
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return "", err
	}
	cached := memory.NewMemCacheClient(client)
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached,
		nil)
	full, partial := schema.ParseResourceArg(strings.ToLower(typ))
	if full == nil {
		versionless := partial.WithVersion("")
		full = &versionless
	}
	resource, err := mapper.ResourceFor(*full)
	if err != nil {
		if resource, err = mapper.ResourceFor(partial.WithVersion("")); meta.IsNoMatchError(err) {
			return "", fmt.Errorf("the server doesn't have a resource type %q", typ)
		} else if err != nil {
			return "", fmt.Errorf("type %s: %w", typ, err)
		}
	}
	kind, err := mapper.KindFor(resource)
	if err != nil {
		return "", fmt.Errorf("type %s: %w", typ, err)
	}
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return "", fmt.Errorf("type %s: %w", typ, err)
	}
	namespace := o.namespace
	if mapping.Scope.Name() == meta.RESTScopeNameRoot || o.allNamespaces {
		namespace = ""
	}
	return history.PathOf(mapping.Resource, namespace, name), nil
}

func (o *pastVersions) run(
	ctx context.Context, s streams, config *rest.Config, path string,
) error {
	w := s.out
	if o.follow {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		err := history.Follow(ctx, config, path, o.options, func(v history.Version) {
			if err := o.print(w, v); err != nil {
				cancel(err)
			}
		})
		if cause := context.Cause(ctx); err == nil && cause != nil &&
			!errors.Is(cause, context.Canceled) {
			return fmt.Errorf("print a version: %w", cause)
		}
		return err
	}
	h, err := history.Get(ctx, config, path, o.options)
	switch {
	case err != nil:
		return err
	case o.options.At != 0:
		return printYAMLOrJSON(w, cmp.Or(o.output, "yaml"), h.Versions[0].Object)
	case o.output != "":
		return printYAMLOrJSON(w, o.output, h)
	case len(h.Versions) == 0:
		fmt.Fprintln(s.err, "No versions found.")
		return nil
	}
	switch {
	case h.More, h.Before != 0:
		fmt.Fprintln(w, "… there are older versions, see --limit")
	case h.Compacted:
		fmt.Fprintln(w, "… older versions are no longer kept")
	}
	return o.print(w, h.Versions...)
}

// print prints a table of versions, with what changed below each one.
func (o *pastVersions) print(w io.Writer, versions ...history.Version) error {
	if o.output != "" {
		for _, v := range versions {
			if o.output == "yaml" {
				fmt.Fprintln(w, "---")
			}
			if err := printYAMLOrJSON(w, o.output, v); err != nil {
				return err
			}
		}
		return nil
	}
	var table bytes.Buffer
	var rows [][]string
	if !o.follow {
		rows = append(rows, []string{
			"REVISION", "TIME", "OBJECT", "EVENT", "USER", "CLIENT", "VERB", "MANAGER",
		})
	}
	for _, v := range versions {
		at, by := "–", history.Writer{}
		if v.Time != nil {
			at = readable(*v.Time)
		}
		if v.Writer != nil {
			by = *v.Writer
		}
		who, verb := by.User, by.Verb
		if by.Impersonator != "" {
			who += " (impersonated by " + by.Impersonator + ")"
		}
		if by.Subresource != "" {
			verb += " " + by.Subresource
		}
		client, _, _ := strings.Cut(by.UserAgent, " ")
		rows = append(rows, []string{
			strconv.FormatInt(v.Revision, 10), at, v.Resource + "/" + v.Name, v.Event, cell(who),
			cell(client), cell(verb), cell(by.Manager),
		})
	}
	if err := output.Table(&table, rows); err != nil {
		return err
	}
	lines := bytes.SplitAfter(table.Bytes(), []byte("\n"))
	if !o.follow {
		if _, err := w.Write(lines[0]); err != nil {
			return err
		}
		lines = lines[1:]
	}
	for i, v := range versions {
		if _, err := w.Write(lines[i]); err != nil {
			return err
		}
		if err := o.printChanges(w, v); err != nil {
			return err
		}
	}
	return nil
}

// cell returns what clients have said about themselves without what would control a terminal.
func cell(text string) string {
	return cmp.Or(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text), "–")
}

// readable returns a time of today without its date.
func readable(t time.Time) string {
	t = t.Local()
	if t.Format(time.DateOnly) == time.Now().Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// colorful reports whether w is a terminal that shows colors, and the user wants them
// (https://no-color.org).
func colorful(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && xterm.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" &&
		os.Getenv("TERM") != "dumb"
}

// maxChanges is how many changes a version shows at most.
const maxChanges = 20

// changeColors are the colors of changes by their first letters: green, red and yellow.
var changeColors = map[byte]int{'+': 32, '-': 31, '~': 33}

func (o *pastVersions) printChanges(w io.Writer, v history.Version) error {
	var text strings.Builder
	for _, line := range v.Summary(maxChanges) {
		if color, ok := changeColors[line[0]]; o.colors && ok {
			line = fmt.Sprintf("\x1b[%dm%s\x1b[0m", color, line)
		}
		fmt.Fprintf(&text, "    %s\n", line)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

func printYAMLOrJSON(w io.Writer, format string, value any) error {
	if format == "json" {
		return output.JSON(w, value)
	}
	text, err := yaml.Marshal(value)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}
