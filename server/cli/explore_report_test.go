package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/kinproc/kinproc/chain/history"
	"github.com/kinproc/kinproc/server/internal/disturb"
	"github.com/kinproc/kinproc/server/internal/explorer"
)

// reportOfOne returns a report with one finding, whose texts would end whatever is around them.
func reportOfOne() *explorer.Report {
	copied, marker := "<b>copied</b>", `"100%"`
	write := disturb.Target{
		By: "controller", Verb: "create", Resource: "configmaps", Namespace: "default", Name: "copy",
		Act: 1, Occurrence: 1, Position: 1, Of: 2,
		Caller: disturb.Caller{File: "/src/copies,v1/copies.go", Line: 31, Function: "create"},
	}
	object := disturb.Object{Resource: "configmaps", Namespace: "default", Name: "done"}
	claim := disturb.Object{Resource: "persistentvolumeclaims", Namespace: "default", Name: "data-pg-0"}
	when := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	found := &disturb.Finding{
		Again: disturb.Same,
		Problems: []disturb.Problem{
			{Kind: disturb.StateDiffers, Objects: []disturb.Difference{
				{Object: object, Fields: []disturb.Field{
					{Path: ".data.by", Undisturbed: &copied},
					{Path: ".data.size", Undisturbed: &copied, Disturbed: &marker},
				}},
				{
					Object: disturb.Object{Resource: "statefulsets.apps", Namespace: "default", Name: "pg"},
					In:     disturb.InUndisturbed, Consequences: []disturb.Object{claim},
				},
			}},
			{Kind: disturb.Miscounted, Objects: []disturb.Difference{{
				Object: object, Deleted: &disturb.Times{Disturbed: 2},
			}}},
			{Kind: disturb.Failed, Message: "The controller exited."},
		},
		Versions: []disturb.Versions{{Object: object, Versions: []history.Version{
			{Revision: 7, Event: history.Created, Time: &when, Resource: "configmaps", Name: "done"},
		}}},
		Timeline: disturb.Timeline{
			Steps: []disturb.Step{
				{Event: "A controller starts."},
				{Seconds: 0.5, Request: write, Disturbed: true, Saw: "no answer"},
			},
			Later: 3,
		},
	}
	results := []*explorer.Result{
		{
			Name: "crash-after-create-configmaps-copy", Kind: "crash-after", What: "It crashed.", At: write,
			Happened: true, Finding: found, Report: "first: line, 100%\nsecond line",
		},
		{Name: "crash-before-create-configmaps-copy", Kind: "crash-before", At: write, Happened: true},
		{Name: "stale-1", Kind: "stale-restart", At: write, Happened: true},
		{Name: "stale-2", Kind: "stale-restart", At: write, Happened: true},
		{Name: "stale-3", Kind: "stale-restart", At: write},
	}
	return &explorer.Report{
		Findings: 1, Results: results, Writes: 2,
		NotTried: []*explorer.Result{{
			Name: "delayed-configmaps", Kind: "delayed", At: disturb.Target{Resource: "configmaps"},
		}},
	}
}

// The page has what the report has, links that lead somewhere, and nothing from elsewhere.
func TestExplorePage(t *testing.T) {
	t.Parallel()
	var page strings.Builder
	if err := htmlReport(reportOfOne(), &page); err != nil {
		t.Fatal(err)
	}
	document, err := html.Parse(strings.NewReader(page.String()))
	if err != nil {
		t.Fatal(err)
	}
	ids, links := map[string]bool{}, []string{}
	for n := range document.Descendants() {
		switch {
		case n.Data == "script", n.Data == "b":
			t.Errorf("the page has an element <%s>", n.Data)
		case n.Data == "tr" && n.Type == html.ElementNode:
			checkColumns(t, n)
		}
		for _, a := range n.Attr {
			switch {
			case a.Key == "id":
				ids[a.Val] = true
			case a.Key == "href":
				links = append(links, a.Val)
			}
			if strings.Contains(a.Val, "//") {
				t.Errorf("%s=%q is elsewhere", a.Key, a.Val)
			}
		}
	}
	if len(links) == 0 {
		t.Error("there are no links to findings")
	}
	for _, l := range links {
		if !ids[strings.TrimPrefix(l, "#")] {
			t.Errorf("nothing has the id of the link %s", l)
		}
	}
	text := textOf(document)
	for _, want := range []string{
		"create configmaps default/copy, 1 of 2 finding ok 2 ok not reached",
		"configmaps not tried",
		"configmaps default/done .data.by <b>copied</b> –",
		`.data.size <b>copied</b> "100%"`,
		"statefulsets.apps default/pg exists lacks, with what follows from it: " +
			"persistentvolumeclaims default/data-pg-0",
		"configmaps default/done was deleted 2 times (undisturbed: never).",
		"0.500 controller create configmaps default/copy, at copies,v1/copies.go:31, in create no answer",
		"… 3 later",
		"revision 7: configmaps done created",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q:\n%s", want, text)
		}
	}
}

// checkColumns fails the test unless a row has as many columns as the first one of its table.
func checkColumns(t *testing.T, row *html.Node) {
	t.Helper()
	table := row.Parent.Parent
	var first *html.Node
	for n := range table.Descendants() {
		if n.Data == "tr" {
			first = n
			break
		}
	}
	if got, want := columns(row), columns(first); got != want {
		t.Errorf("a row has %d columns, want %d: %s", got, want, textOf(row))
	}
}

func columns(row *html.Node) int {
	n := 0
	for c := range row.ChildNodes() {
		if c.Type != html.ElementNode {
			continue
		}
		n++
		for _, a := range c.Attr {
			if a.Key == "colspan" && a.Val == "3" {
				n += 2
			}
		}
	}
	return n
}

func textOf(n *html.Node) string {
	var all []string
	for c := range n.Descendants() {
		if c.Type == html.TextNode && c.Parent.Data != "style" {
			all = append(all, c.Data)
		}
	}
	text := strings.Join(strings.Fields(strings.Join(all, " ")), " ")
	return strings.ReplaceAll(text, " ,", ",")
}

// A workflow command is a line, whatever a report contains.
func TestExploreForGitHub(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := githubReport(reportOfOne(), &out); err != nil {
		t.Fatal(err)
	}
	const want = "::error title=kinproc explore%3A crash-after-create-configmaps-copy" +
		"::first: line, 100%25%0Asecond line\n" +
		"5 disturbances, 1 findings\n1 disturbances were not tried\n"
	if !strings.HasPrefix(out.String(), want) {
		t.Errorf("got %q, want the beginning %q", out.String(), want)
	}
}

// The fields of a finding are in the JSON by their names.
func TestExploreAsJSON(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := jsonReport(reportOfOne(), &out); err != nil {
		t.Fatal(err)
	}
	var report struct {
		Disturbances []struct {
			Name    string
			At      struct{ Verb, Resource, Namespace, Name string }
			Finding *struct {
				SecondTry string
				Problems  []struct {
					Kind, Message string
					Objects       []struct {
						Resource, Namespace, Name, In string
						Consequences                  []struct{ Name string }
						Deleted                       *struct{ Undisturbed, Disturbed int }
						Fields                        []struct {
							Path                   string
							Undisturbed, Disturbed *string
						}
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(out.String()), &report); err != nil {
		t.Fatal(err)
	}
	first := report.Disturbances[0]
	if first.At.Verb != "create" || first.At.Name != "copy" || first.Finding.SecondTry != "same problems" {
		t.Errorf("got %+v", first)
	}
	if report.Disturbances[1].Finding != nil {
		t.Error("what is no finding has one")
	}
	state, counts := first.Finding.Problems[0], first.Finding.Problems[1]
	done, set := state.Objects[0], state.Objects[1]
	if f := done.Fields[0]; state.Kind != "state" || f.Path != ".data.by" ||
		*f.Undisturbed != "<b>copied</b>" || f.Disturbed != nil {
		t.Errorf("got %+v", done)
	}
	if set.In != "undisturbed" || set.Consequences[0].Name != "data-pg-0" {
		t.Errorf("got %+v", set)
	}
	if d := counts.Objects[0].Deleted; counts.Kind != "counts" || d.Undisturbed != 0 || d.Disturbed != 2 {
		t.Errorf("got %+v", counts)
	}
}
