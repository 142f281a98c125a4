package settings

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kinproc/kinproc/chain/documents"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/nearest"
	"github.com/kinproc/kinproc/server/internal/simulated"
)

// fileName is the name of the file that kinproc start looks for in the working directory.
const fileName = "kinproc.yaml"

// nodesFlag is the flag with the number of nodes of no kind.
const nodesFlag = "simulate-nodes"

// File is what a file kinproc.yaml says. It can come with a cloned repository. So it says only
// what the cluster is like, and whether a read-only page shows it: not where it listens beyond its
// port, which files it reads or writes, or what it allows to whom.
type File struct {
	// Path is that of the file, as messages have it.
	Path string
	// Kinds are the kinds of simulated nodes.
	Kinds []server.SimulatedNodeKind
	// Manifests are files and directories with objects, relative to the directory of the file.
	Manifests []Manifest
	entries   []entry
}

// Manifest is a file or a directory with objects.
type Manifest struct {
	Path string
	Line int
}

// entry is a setting that a flag can have too.
type entry struct {
	line             int
	key, flag, value string
}

// A Mistake is one in the file, with its place.
type Mistake struct {
	Path string
	Line int
	Err  error
}

// Error returns the place and what is wrong.
func (m Mistake) Error() string {
	return fmt.Sprintf("%s:%d: %s", m.Path, m.Line, m.Err)
}

// Unwrap returns what is wrong.
func (m Mistake) Unwrap() error { return m.Err }

func (f *File) wrong(line int, format string, args ...any) error {
	return Mistake{f.Path, line, fmt.Errorf(format, args...)}
}

// ReadFile parses a file. The error has all mistakes, each with its line. The function check
// returns what is wrong with a value of a flag.
func ReadFile(path string, data []byte, check func(flag, value string) error) (*File, error) {
	r := &reader{file: &File{Path: path}, check: check}
	all, err := documents.Nodes(data)
	switch {
	case err != nil:
		return nil, r.syntax(err)
	case len(all) == 0:
		return r.file, nil // nothing but comments
	case len(all) > 1:
		return nil, r.file.wrong(all[1].Line, "there is more than one document")
	}
	r.top(all[0].Content[0])
	return r.file, errors.Join(r.errs...)
}

// reader reads a document, and collects what is wrong.
type reader struct {
	file  *File
	check func(flag, value string) error
	errs  []error
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax puts the line of the library's error where the others have it.
func (r *reader) syntax(err error) error {
	var tooLarge *documents.TooLargeError
	if errors.As(err, &tooLarge) {
		return r.file.wrong(1, "%w", err)
	}
	found := yamlLine.FindStringSubmatch(err.Error())
	line := 1 // which the library does not name
	if len(found) > 1 && found[1] != "" {
		line, _ = strconv.Atoi(found[1]) // the expression allows digits only
	}
	return r.file.wrong(line, "it is not YAML: %s", yamlLine.ReplaceAllString(err.Error(), ""))
}

// maxMistakes is how many mistakes to report.
const maxMistakes = 10

func (r *reader) wrong(n *yaml.Node, format string, args ...any) {
	if len(r.errs) < maxMistakes {
		r.errs = append(r.errs, r.file.wrong(n.Line, format, args...))
	}
}

// field is a field of a mapping: how to read its value.
type field struct {
	name string
	read func(key string, value *yaml.Node)
}

func (r *reader) top(n *yaml.Node) {
	// flag is a field that a flag can set too; write returns its value as the flag takes it.
	flag := func(
		name, flag string, write func(key, flag string, n *yaml.Node) (string, bool),
	) field {
		return field{name, func(key string, value *yaml.Node) {
			if text, ok := write(key, flag, value); ok {
				r.set(value, key, flag, text)
			}
		}}
	}
	r.mapping(n, "", []field{
		flag("name", "name", r.one),
		flag("port", "secure-port", r.port),
		flag("kubernetes", "emulated-version", r.one),
		flag("nodes", nodesFlag, r.one),
		flag("nodeCapacity", "simulated-node-capacity", r.amounts),
		flag("nodesMatching", "simulate-nodes-matching", r.one),
		{"nodeKinds", func(key string, value *yaml.Node) { r.each(value, key, r.nodeKind) }},
		{"manifests", func(key string, value *yaml.Node) { r.each(value, key, r.manifest) }},
		flag("controllers", "controllers", r.words),
		flag("featureGates", "feature-gates", r.switches),
		flag("runtimeConfig", "runtime-config", r.switches),
		{"admissionPlugins", func(key string, value *yaml.Node) {
			r.mapping(value, key, []field{
				flag("enable", "enable-admission-plugins", r.words),
				flag("disable", "disable-admission-plugins", r.words),
			})
		}},
		flag("serviceClusterIPRange", "service-cluster-ip-range", r.one),
		flag("serviceNodePortRange", "service-node-port-range", r.one),
		flag("dashboard", "dashboard", r.one),
	})
}

// set notes a setting that a flag can have too.
func (r *reader) set(n *yaml.Node, key, flag, value string) {
	if err := r.check(flag, value); err != nil {
		r.wrong(n, "%s: %w", key, err)
		return
	}
	r.file.entries = append(r.file.entries, entry{n.Line, key, flag, value})
}

// mapping reads the fields of a mapping.
func (r *reader) mapping(n *yaml.Node, where string, fields []field) {
	var names []string
	for _, f := range fields {
		names = append(names, f.name)
	}
	r.entries(n, where, func(key, value *yaml.Node) {
		i := slices.Index(names, key.Value)
		if i < 0 {
			hint := nearest.Ask(key.Value, names)
			if hint == "" {
				hint = "the fields are " + strings.Join(names, ", ")
			}
			r.wrong(key, "there is no field %s; %s", path(where, key.Value), hint)
			return
		}
		fields[i].read(path(where, key.Value), value)
	})
}

func path(where, key string) string {
	if where == "" {
		return key
	}
	return where + "." + key
}

// entries calls use for each key of a mapping, which may occur once, and its value.
func (r *reader) entries(n *yaml.Node, where string, use func(key, value *yaml.Node)) {
	if n = aliased(n); n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.wrong(n, "%s: it must be a mapping, with lines like key: value", cmp.Or(where, "the file"))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := aliased(n.Content[i]), aliased(n.Content[i+1])
		if key.Kind != yaml.ScalarNode {
			r.wrong(key, "%s: a key must be a word", cmp.Or(where, "the file"))
			continue
		}
		if line, ok := seen[key.Value]; ok {
			r.wrong(key, "%s is already set in line %d", path(where, key.Value), line)
			continue
		}
		seen[key.Value] = key.Line
		use(key, value)
	}
}

// aliased returns what an alias stands for.
func aliased(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// each calls use for the items of a list.
func (r *reader) each(n *yaml.Node, key string, use func(key string, item *yaml.Node)) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.SequenceNode {
		r.wrong(n, "%s: it must be a list, with lines that begin with a dash", key)
		return
	}
	for i, item := range n.Content {
		use(fmt.Sprintf("%s[%d]", key, i), aliased(item))
	}
}

// word returns a scalar.
func (r *reader) word(key string, n *yaml.Node) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		r.wrong(n, "%s: it must be a word or a number", key)
		return "", false
	}
	return n.Value, true
}

func (r *reader) one(key, _ string, n *yaml.Node) (string, bool) { return r.word(key, n) }

func (r *reader) port(key, _ string, n *yaml.Node) (string, bool) {
	value, ok := r.word(key, n)
	if number, err := strconv.Atoi(value); ok && (err != nil || number < 1 || number > 65535) {
		r.wrong(n, "%s: %q is not between 1 and 65535; leave it out for any port", key, value)
		return "", false
	}
	return value, ok
}

// words returns the scalars of a list, with commas between them. Each is checked by itself, so that
// mistakes have its line; the whole list is checked when it is set.
func (r *reader) words(key, flag string, n *yaml.Node) (string, bool) {
	var all []string
	before := len(r.errs)
	r.each(n, key, func(key string, item *yaml.Node) {
		value, ok := r.word(key, item)
		if !ok {
			return
		}
		if strings.ContainsAny(value, ",\"\n") {
			r.wrong(item, "%s: %q must be one name; put each on a line of its own", key, value)
		} else if err := r.check(flag, value); err != nil {
			r.wrong(item, "%s: %w", key, err)
		}
		all = append(all, value)
	})
	return strings.Join(all, ","), len(all) > 0 && len(r.errs) == before
}

// switches returns a mapping to true and false as the flags take it.
func (r *reader) switches(key, flag string, n *yaml.Node) (string, bool) {
	return r.pairs(key, flag, n, func(value string) error {
		if value != "true" && value != "false" {
			return fmt.Errorf("%q is neither true nor false", value)
		}
		return nil
	})
}

// amounts returns a mapping to quantities as the flags take it.
func (r *reader) amounts(key, flag string, n *yaml.Node) (string, bool) {
	return r.pairs(key, flag, n, func(value string) error {
		_, err := quantity(value)
		return err
	})
}

func quantity(text string) (resource.Quantity, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return q, fmt.Errorf("%q is not a quantity, such as 500m or 32Gi", text)
	}
	return q, nil
}

// pairs returns a mapping as key=value, with commas between them. Each pair is checked by itself.
func (r *reader) pairs(
	key, flag string, n *yaml.Node, valid func(value string) error,
) (string, bool) {
	var all []string
	before := len(r.errs)
	r.entries(n, key, func(name, n *yaml.Node) {
		where := path(key, name.Value)
		value, ok := r.word(where, n)
		if !ok {
			return
		}
		pair := name.Value + "=" + value
		if err := valid(value); err != nil {
			r.wrong(n, "%s: %w", where, err)
		} else if strings.ContainsAny(pair, ",\n") {
			r.wrong(n, "%s: it must have no commas", where)
		} else if err := r.check(flag, pair); err != nil {
			r.wrong(n, "%s: %w", where, err)
		}
		all = append(all, pair)
	})
	return strings.Join(all, ","), len(all) > 0 && len(r.errs) == before
}

func (r *reader) manifest(key string, n *yaml.Node) {
	if value, ok := r.word(key, n); ok {
		r.file.Manifests = append(r.file.Manifests, Manifest{value, n.Line})
	}
}

// nodeKind reads a kind of nodes.
func (r *reader) nodeKind(key string, n *yaml.Node) {
	kind := server.SimulatedNodeKind{Count: 1}
	// ok reports whether a kind that has nothing but one of the fields is valid.
	ok := func(n *yaml.Node, key string, k simulated.Kind) bool {
		if k.Name == "" {
			k.Name = "any"
		}
		err := k.Check()
		if err != nil {
			r.wrong(n, "%s: %w", key, err)
		}
		return err == nil
	}
	r.mapping(n, key, []field{
		{"name", func(key string, n *yaml.Node) {
			if name, is := r.word(key, n); is && ok(n, key, simulated.Kind{Name: cmp.Or(name, " ")}) {
				kind.Name = name
			}
		}},
		{"count", func(key string, n *yaml.Node) {
			text, is := r.word(key, n)
			if !is {
				return
			}
			count, err := strconv.Atoi(text)
			if err != nil || count < 0 {
				r.wrong(n, "%s: %q is not a number of nodes", key, text)
				return
			}
			kind.Count = count
		}},
		{"labels", func(where string, n *yaml.Node) {
			kind.Labels = map[string]string{}
			r.entries(n, where, func(key, n *yaml.Node) {
				value, is := r.word(path(where, key.Value), n)
				if is && ok(key, where, simulated.Kind{Labels: map[string]string{key.Value: value}}) {
					kind.Labels[key.Value] = value
				}
			})
		}},
		{"taints", func(key string, n *yaml.Node) {
			r.each(n, key, func(key string, n *yaml.Node) {
				if t, is := r.taint(key, n); is && ok(n, key, simulated.Kind{Taints: []corev1.Taint{t}}) {
					kind.Taints = append(kind.Taints, t)
				}
			})
		}},
		{"capacity", func(where string, n *yaml.Node) {
			kind.Capacity = corev1.ResourceList{}
			r.entries(n, where, func(key, n *yaml.Node) {
				text, is := r.word(path(where, key.Value), n)
				if !is {
					return
				}
				amount, err := quantity(text)
				if err != nil {
					r.wrong(n, "%s: %w", path(where, key.Value), err)
					return
				}
				list := corev1.ResourceList{corev1.ResourceName(key.Value): amount}
				if ok(n, where, simulated.Kind{Capacity: list}) {
					kind.Capacity[corev1.ResourceName(key.Value)] = amount
				}
			})
		}},
	})
	if aliased(n).Kind == yaml.MappingNode && kind.Name == "" && len(r.errs) == 0 {
		r.wrong(n, "%s: it needs a name", key)
	}
	if slices.ContainsFunc(r.file.Kinds, func(other server.SimulatedNodeKind) bool {
		return other.Name == kind.Name
	}) {
		r.wrong(n, "%s: there is already a kind of nodes named %s", key, kind.Name)
	}
	r.file.Kinds = append(r.file.Kinds, kind)
}

// taint reads a taint as kubectl taint takes it: key=value:effect or key:effect.
func (r *reader) taint(key string, n *yaml.Node) (t corev1.Taint, ok bool) {
	text, ok := r.word(key, n)
	if !ok {
		return t, false
	}
	name, effect, ok := strings.Cut(text, ":")
	if !ok {
		r.wrong(n, "%s: %q is not of the form key=value:NoSchedule", key, text)
		return t, false
	}
	if question := nearest.Ask(effect, simulated.Effects()); question != "" &&
		!slices.Contains(simulated.Effects(), effect) {
		r.wrong(n, "%s: %q is not an effect of a taint; %s", key, effect, question)
		return t, false
	}
	t.Key, t.Value, _ = strings.Cut(name, "=")
	t.Effect = corev1.TaintEffect(effect)
	return t, true
}
