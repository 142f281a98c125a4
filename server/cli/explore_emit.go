package cli

import (
	"bytes"
	"errors"
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/kinproc/kinproc/server/internal/explorer"
	"github.com/kinproc/kinproc/server/internal/plainfile"
)

// emitted is the test in Go that repeats findings.
var emitted = template.Must(template.New("").Parse(`package {{.Package}}

import (
	"testing"
	"time"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
	"github.com/kinproc/kinproc/server/servertest/explore"
)

// TestFindings repeats what kinproc explore has found.
func TestFindings(t *testing.T) {
	explore.Run(t, explore.Test{
{{- if .Prepare}}
		Prepare: func(t explore.TB, s *server.Server) {
			servertest.Apply(t, s, "", servertest.Files({{.Prepare}}))
		},
{{- end}}
		// For a debugger, start the controller in this process instead, as its function main does.
		Controller: explore.Program({{.Program}}),
		Act: explore.Scripts({{.Act}}),
		Options: []func(*server.Options){servertest.Workloads{{if .Options}}, func(o *server.Options) {
{{- range .Options}}
			{{.}}
{{- end}}
		}{{end}}},
{{- range .Fields}}
		{{.}},
{{- end}}
		Only: []string{
{{- range .Findings}}
			// {{.What}}
			{{printf "%q" .Name}},
{{- end}}
		},
	})
}
`))

// checkEmit returns an error unless the file of --emit-test can be that of a new test.
func (o *exploreOptions) checkEmit() error {
	if o.emit == "" {
		return nil
	}
	if !strings.HasSuffix(o.emit, "_test.go") {
		return fmt.Errorf("--emit-test %s: the name of a test ends in _test.go", o.emit)
	}
	if _, err := os.Lstat(o.emit); err == nil {
		return fmt.Errorf("--emit-test %s: the file exists already", o.emit)
	}
	return nil
}

// emitTest writes a test that repeats the findings, if there are any, to the file of --emit-test.
func (o *exploreOptions) emitTest(r *explorer.Report, args []string) error {
	if o.emit == "" || r.Findings == 0 {
		return nil
	}
	source, err := o.testOf(r, args)
	if err != nil {
		return fmt.Errorf("--emit-test: %w", err)
	}
	f, err := os.OpenFile(o.emit, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(source)
	return errors.Join(err, f.Close())
}

// testOf returns the source of a test that repeats the findings.
func (o *exploreOptions) testOf(r *explorer.Report, args []string) ([]byte, error) {
	dir := filepath.Dir(o.emit)
	var wrong error
	list := func(paths []string) string {
		var quoted []string
		for _, p := range paths {
			p, err := pathFrom(dir, p)
			wrong = errors.Join(wrong, err)
			quoted = append(quoted, strconv.Quote(p))
		}
		return strings.Join(quoted, ", ")
	}
	program := args[0]
	if strings.ContainsRune(program, filepath.Separator) {
		program, wrong = pathFrom(dir, program)
		if !filepath.IsAbs(program) && !strings.HasPrefix(program, "..") {
			program = "." + string(filepath.Separator) + program
		}
	}
	name, err := packageIn(dir)
	wrong = errors.Join(wrong, err)
	test := struct {
		Package, Prepare, Program, Act string
		Options, Fields                []string
		Findings                       []emittedFinding
	}{
		Package: name, Prepare: list(o.prepare), Act: list(o.act),
		Program: quoted(append([]string{program}, args[1:]...)),
		Options: o.emittedOptions(),
		Fields:  o.emittedFields(),
	}
	for _, result := range r.Results {
		if result.Finding != nil {
			what := strings.Join(strings.Fields(result.What), " ") // that of a pair has several lines
			test.Findings = append(test.Findings, emittedFinding{result.Name, what})
		}
	}
	if wrong != nil {
		return nil, wrong
	}
	text := &bytes.Buffer{}
	if err := emitted.Execute(text, test); err != nil {
		return nil, err
	}
	return format.Source(text.Bytes())
}

type emittedFinding struct{ Name, What string }

// emittedOptions returns what sets those options of the control planes that flags have set.
func (o *exploreOptions) emittedOptions() (lines []string) {
	if o.server.PodBehaviors {
		lines = append(lines, "o.PodBehaviors = true")
	}
	if len(o.server.StandInPorts) > 0 {
		lines = append(lines, fmt.Sprintf("o.StandInPorts = []string{%s}", quoted(o.server.StandInPorts)))
	}
	return lines
}

// emittedFields returns the fields of the test that flags have set.
func (o *exploreOptions) emittedFields() (lines []string) {
	if len(o.always) > 0 {
		lines = append(lines, fmt.Sprintf("Always: []string{%s}", quoted(o.always)))
	}
	if o.pairs {
		lines = append(lines, "Pairs: true")
	}
	if o.hold {
		lines = append(lines, "HoldWhileWaiting: true")
	}
	if o.parallel > 0 {
		lines = append(lines, fmt.Sprintf("Parallel: %d", o.parallel))
	}
	return append(lines, "Settle: "+inGo(o.settle), "Patience: "+inGo(o.patience))
}

// inGo returns a duration as an expression.
func inGo(d time.Duration) string {
	for _, unit := range []struct {
		name string
		of   time.Duration
	}{{"time.Second", time.Second}, {"time.Millisecond", time.Millisecond}} {
		switch {
		case d == unit.of:
			return unit.name
		case d%unit.of == 0:
			return fmt.Sprintf("%d * %s", d/unit.of, unit.name)
		}
	}
	return fmt.Sprintf("%d", d)
}

func quoted(texts []string) string {
	var all []string
	for _, text := range texts {
		all = append(all, strconv.Quote(text))
	}
	return strings.Join(all, ", ")
}

// pathFrom returns the path of a file as seen from a directory. An absolute path stays as it is.
func pathFrom(dir, path string) (string, error) {
	if filepath.IsAbs(path) {
		return path, nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", err
	}
	path, err = filepath.Rel(dir, path)
	return filepath.ToSlash(path), err
}

// packageIn returns the name for a package of tests in a directory: that of the package which is
// there, with the suffix _test.
func packageIn(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		return "explore_test", err
	}
	text, err := plainfile.Read(files[0])
	if err != nil {
		return "", err
	}
	f, err := parser.ParseFile(token.NewFileSet(), files[0], text, parser.PackageClauseOnly)
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(f.Name.Name, "_test") + "_test", nil
}
