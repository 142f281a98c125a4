package main

import (
	"go/ast"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// decodesYAML has, for each package that decodes YAML, the names of what does. Those of clientcmd
// that read files are missing: the user names these files, as for kubectl.
var decodesYAML = map[string]*regexp.Regexp{
	"sigs.k8s.io/yaml":                  yamlDecoders,
	"sigs.k8s.io/yaml/goyaml.v2":        yamlDecoders,
	"sigs.k8s.io/yaml/goyaml.v3":        yamlDecoders,
	"sigs.k8s.io/kustomize/kyaml/yaml":  yamlDecoders,
	"go.yaml.in/yaml/v2":                yamlDecoders,
	"go.yaml.in/yaml/v3":                yamlDecoders,
	"go.yaml.in/yaml/v4":                yamlDecoders,
	"gopkg.in/yaml.v2":                  yamlDecoders,
	"gopkg.in/yaml.v3":                  yamlDecoders,
	"k8s.io/apimachinery/pkg/util/yaml": yamlDecoders,
	"k8s.io/cli-runtime/pkg/resource":   regexp.MustCompile(`^New(Local)?Builder$`),
	"k8s.io/client-go/tools/clientcmd": regexp.MustCompile(
		`^(Load|NewClientConfigFromBytes|RESTConfigFromKubeConfig)$`),
}

var yamlDecoders = regexp.MustCompile(
	`^(Unmarshal|UnmarshalStrict|YAMLToJSON|YAMLToJSONStrict|JSONToYAML|ToJSON|Load|Parse|MustParse|` +
		`New\w*(Decoder|Reader))$`)

// undocumented lists who decodes YAML without package documents, and why that is safe.
var undocumented = map[string]string{
	"server/internal/simulated/behaviors.go: yaml.Unmarshal":    "a file of the program itself",
	"server/internal/dashboard/secrets.go: yaml.JSONToYAML":     "what json.Marshal has written",
	"server/cli/internal/sandbox/kubeconfig.go: clientcmd.Load": "what documents has decoded before",
	"conformance/internal/exchanges/pair.go: yaml.YAMLToJSON":   "files of this repository",
}

// YAML that a user or a repository wrote is decoded by package documents, which has limits.
func TestYAMLIsDecodedWithLimits(t *testing.T) {
	t.Parallel()
	const decoder = "chain/documents"
	found := map[string]bool{}
	goFiles(t, func(file string, parsed *ast.File) {
		if strings.HasSuffix(file, "_test.go") || path.Dir(file) == decoder {
			return
		}
		for _, call := range yamlCalls(t, file, parsed) {
			found[call] = true
			if undocumented[call] == "" {
				t.Errorf("%s: decode what a user or a repository may have written with package %s",
					call, decoder)
			}
		}
	})
	for call := range undocumented {
		if !found[call] {
			t.Errorf("%s: there is no such call any more, so it needs no exception", call)
		}
	}
}

// yamlCalls returns the uses of what decodes YAML in a file.
func yamlCalls(t *testing.T, file string, parsed *ast.File) (calls []string) {
	t.Helper()
	decoders := map[string]*regexp.Regexp{} // by the name that the file gives to their package
	of := map[string]string{}
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		names := decodesYAML[imported]
		if names == nil {
			continue
		}
		name := "yaml"
		if base := path.Base(imported); base == "resource" || base == "clientcmd" {
			name = base
		}
		local := name
		if spec.Name != nil {
			local = spec.Name.Name
		}
		if local == "." {
			t.Errorf("%s imports all names of %s", file, imported)
		}
		decoders[local], of[local] = names, name
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := selector.X.(*ast.Ident)
		if ok && decoders[x.Name] != nil && decoders[x.Name].MatchString(selector.Sel.Name) {
			calls = append(calls, file+": "+of[x.Name]+"."+selector.Sel.Name)
		}
		return true
	})
	return calls
}
