package main

import (
	"bytes"
	"context"
	"html/template"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/trace"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestPicturesOfTour draws the pictures of the walks in docs/tour from traces: the links of the
// chain are those that a request for an unknown group passes, and those that a request of the walk
// passes are marked. Flag -update writes the pictures.
func TestPicturesOfTour(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	servertest.CRDs(t, s, servertest.Files("examples/crontab/manifests/definition.yaml"))
	servertest.Apply(t, s, "", servertest.YAML(elsewhere))
	const portrules = "/apis/net.example.com/v1/portrules"
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) {
			return !slices.ContainsFunc(pathOf(t, s, "GET", portrules, ""), func(step trace.Step) bool {
				return step.Decision == "404"
			}), nil
		})
	if err != nil {
		t.Fatalf("the aggregator does not know the API service: %v", err)
	}
	filters := []string{"authentication", "flow control", "authorization"}
	var links []string
	for _, step := range pathOf(t, s, "GET", "/apis/nobody.example.com/v1/things", "") {
		if strings.HasPrefix(step.Decision, "delegated to ") || step.Decision == "404" {
			links = append(links, step.At)
		}
	}
	if len(links) < 2 || links[len(links)-1] != "not found" {
		t.Fatalf("the links are %q", links)
	}
	const crontabs = "/apis/simple.extension.io/v1/namespaces/default/crontabs"
	claims := "/api/v1/namespaces/default/persistentvolumeclaims"
	for name, steps := range map[string][]trace.Step{
		"1-request":    pathOf(t, s, "GET", crontabs, ""),
		"2-operator":   pathOf(t, s, "POST", crontabs, crontab),
		"3-aggregated": pathOf(t, s, "GET", portrules, ""),
		"4-sdk":        pathOf(t, s, "GET", portrules, ""),
		"5-write":      pathOf(t, s, "POST", claims, claim),
	} {
		drawn := draw(t, filters, links, steps)
		file := filepath.Join("docs", "tour", name+".svg")
		kept, err := os.ReadFile(file)
		if err != nil && !*update {
			t.Fatal(err)
		}
		if bytes.Equal(kept, drawn) {
			continue
		}
		if !*update {
			t.Errorf("%s shows something else than the chain does: run go test . "+
				"-run TestPicturesOfTour -update", file)
			continue
		}
		if err := os.WriteFile(file, drawn, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	crontab = `{"apiVersion": "simple.extension.io/v1", "kind": "CronTab", "metadata": {"name": "a"},
"spec": {"cronSpec": "* * * * *", "image": "image"}}`
	claim = `{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"},
"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}`
	// elsewhere registers a server that nobody runs.
	elsewhere = `
apiVersion: v1
kind: Service
metadata: {name: elsewhere, namespace: default}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.net.example.com}
spec:
  group: net.example.com
  version: v1
  groupPriorityMinimum: 1000
  versionPriority: 10
  insecureSkipTLSVerify: true
  service: {name: elsewhere, namespace: default, port: 1}
`
)

// pathOf sends a request and returns its trace.
func pathOf(t *testing.T, s *server.Server, method, path, body string) []trace.Step {
	t.Helper()
	config := s.RESTConfig()
	var steps []trace.Step
	trace.Wrap(config, func(traced trace.Traced) { steps = traced.Steps })
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(context.Background(), method, s.URL()+path,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil { // the trace comes behind it
		t.Fatal(err)
	}
	return steps
}

// box is a place in a picture.
type box struct {
	Name   string
	X, Y   int
	Passed bool
	Served bool
}

// picture is the chain from left to right, with what happens inside of the server that answers
// below it.
type picture struct {
	Width, Height int
	Boxes, Inside []box
	Answer        int  // the middle of the box that answers
	Away          bool // to an extension API server
}

const boxWidth, boxGap = 144, 20

// inside are the places inside of a server that a picture shows.
var inside = []string{
	"decoding", "mutating admission", "strategy", "validation", "validating admission",
	"storage encoding", "etcd",
}

func draw(t *testing.T, filters, links []string, steps []trace.Step) []byte {
	t.Helper()
	passed := func(place string) bool {
		return slices.ContainsFunc(steps, func(s trace.Step) bool { return s.At == place })
	}
	p := picture{Height: 96}
	add := func(b box) {
		b.X, b.Y = len(p.Boxes)*(boxWidth+boxGap)+boxGap/2, 24
		p.Boxes = append(p.Boxes, b)
	}
	add(box{Name: "filters", Passed: !slices.ContainsFunc(filters, func(f string) bool {
		return !passed(f)
	})})
	last := ""
	for _, link := range links {
		if passed(link) {
			last = link
		}
	}
	for _, link := range links {
		add(box{Name: link, Passed: passed(link), Served: link == last})
		if link == last {
			p.Answer = p.Boxes[len(p.Boxes)-1].X + boxWidth/2
		}
	}
	p.Width = len(p.Boxes) * (boxWidth + boxGap)
	p.Away = last == links[0]
	var within []string
	for _, place := range inside {
		if passed(place) || place == "validating admission" && passed("validation") {
			within = append(within, place)
		}
	}
	if p.Away {
		within = []string{"extension API server"}
	}
	for i, place := range within {
		p.Inside = append(p.Inside, box{Name: place, X: p.Answer - boxWidth/2, Y: 104 + i*44})
		p.Height = 104 + i*44 + 56
	}
	var drawn bytes.Buffer
	if err := svg.Execute(&drawn, p); err != nil {
		t.Fatal(err)
	}
	return drawn.Bytes()
}

var svg = template.Must(template.New("svg").Funcs(template.FuncMap{
	"plus": func(a, b int) int { return a + b },
}).Parse(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{.Width}} {{.Height}}" role="img">
<style>
text { font: 13px system-ui, sans-serif; text-anchor: middle; fill: #57606a; }
rect { fill: none; stroke: #8c959f; rx: 6px; }
path { stroke: #8c959f; fill: none; }
.passed rect, .inside rect { stroke: #0969da; fill: #0969da18; }
.passed text, .inside text { fill: #0969da; }
.served rect { stroke-width: 2.5; }
path.passed, .inside path { stroke: #0969da; }
@media (prefers-color-scheme: dark) {
text { fill: #8b949e; }
rect, path { stroke: #6e7681; }
.passed rect, .inside rect { stroke: #4493f8; fill: #4493f822; }
.passed text, .inside text { fill: #4493f8; }
path.passed, .inside path { stroke: #4493f8; }
}
</style>
{{range $i, $b := .Boxes -}}
<g class="{{if .Passed}}passed{{end}}{{if .Served}} served{{end}}">
{{- if $i}}<path{{if .Passed}} class="passed"{{end}} d="M{{plus .X -20}} 44h20m-6 -4l6 4l-6 4"/>{{end -}}
<rect x="{{.X}}" y="{{.Y}}" width="144" height="40"/>
{{- ""}}<text x="{{plus .X 72}}" y="{{plus .Y 25}}">{{.Name}}</text></g>
{{end -}}
<g class="inside">
{{range .Inside -}}
<path d="M{{plus .X 72}} {{plus .Y -12}}v12"/><rect x="{{.X}}" y="{{.Y}}" width="144" height="32"/>
{{- ""}}<text x="{{plus .X 72}}" y="{{plus .Y 21}}">{{.Name}}</text>
{{end -}}
</g>
{{with .Inside}}<g class="inside"><path d="M{{$.Answer}} 64v40"/></g>
{{end -}}
</svg>
`))
