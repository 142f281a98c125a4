package history_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/kinproc/kinproc/chain/history"
)

func ExampleChange() {
	fmt.Println(history.Change{
		Path: ".spec.replicas", Before: json.RawMessage("1"), After: json.RawMessage("3"),
	})
	fmt.Println(history.Change{Path: ".data.size", After: json.RawMessage(`"2"`)})
	// Output:
	// ~ .spec.replicas: 1 → 3
	// + .data.size: "2"
}

func TestVersionIsOneLine(t *testing.T) {
	t.Parallel()
	for want, w := range map[string]*history.Writer{
		"": nil,
		" by jane (kubectl/v1.37.2, patch)": {
			User: "jane", UserAgent: "kubectl/v1.37.2 (linux/amd64)", Verb: "patch",
		},
		" by jane (patch status)": {User: "jane", Verb: "patch", Subresource: "status"},
		" by jane (curl/8)":       {User: "jane", UserAgent: "curl/8"},
		" by jane":                {User: "jane"},
	} {
		v := history.Version{
			Revision: 210, Event: history.Updated, Resource: "configmaps", Namespace: "default",
			Name: "limits", Writer: w, Changes: make([]history.Change, 3),
		}
		want = "revision 210: configmaps default/limits updated" + want
		if got := v.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if w != nil && w.UserAgent != "" {
			client, _, _ := strings.Cut(w.UserAgent, " ")
			want = strings.Replace(want, client, client+", test", 1)
			if got := v.Line(client + ", test"); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		for n, want := range map[int]string{1: "… 2 more changes", 2: "… 1 more change"} {
			if got := v.Summary(n); len(got) != n+1 || got[n] != want {
				t.Errorf("%q, want %q at the end", got, want)
			}
		}
	}
}

func TestChangesAreShortLines(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"{\n  \"a\": [\n    1\n  ]\n}":        `- .x: {"a":[1]}`,
		`"` + strings.Repeat("x", 1000) + `"`: `- .x: "` + strings.Repeat("x", 99) + "…",
		`"` + strings.Repeat("ä", 1000) + `"`: `- .x: "` + strings.Repeat("ä", 49) + "…",
		`"` + strings.Repeat("x", 99-1) + `"`: `- .x: "` + strings.Repeat("x", 98) + `"`,
	} {
		if got := (history.Change{Path: ".x", Before: json.RawMessage(value)}).String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestOptionsInQueries(t *testing.T) {
	t.Parallel()
	for _, o := range []history.Options{
		{Limit: history.DefaultLimit},
		{Limit: 7, Labels: "app=web", Contents: true, At: 1234},
	} {
		if got, err := history.ParseOptions(o.Query()); err != nil || got != o {
			t.Errorf("%+v, %v, want %+v", got, err, o)
		}
	}
	for _, wrong := range []string{
		"limit=0", "limit=1001", "limit=x", "contents=perhaps", "revision=0", "revision=-1", "revision=x",
		"fieldSelector=metadata.name%3Dx",
	} {
		query, err := url.ParseQuery(wrong)
		if err != nil {
			t.Fatal(err)
		}
		if o, err := history.ParseOptions(query); err == nil {
			t.Errorf("%s: %+v", wrong, o)
		}
	}
}
