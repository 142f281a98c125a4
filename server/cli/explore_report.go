package cli

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/kinproc/kinproc/server/internal/disturb"
	"github.com/kinproc/kinproc/server/internal/explorer"
)

// reportFormats are those of -o.
var reportFormats = map[string]func(*explorer.Report, io.Writer) error{
	"text": textReport, "json": jsonReport, "github": githubReport,
}

// textReport writes the findings, and how many there are.
func textReport(r *explorer.Report, w io.Writer) error {
	var b strings.Builder
	for _, result := range r.Results {
		if result.Report != "" {
			fmt.Fprintf(&b, "%s\n", result.Report)
		}
	}
	b.WriteString(totals(r))
	_, err := io.WriteString(w, b.String())
	return err
}

// totals returns how many disturbances and findings there are, of what kinds.
func totals(r *explorer.Report) string {
	text := fmt.Sprintf("%d disturbances, %d findings\n", len(r.Results), r.Findings)
	if n := len(r.NotTried); n > 0 {
		text += fmt.Sprintf("%d disturbances were not tried\n", n)
	}
	if len(r.Unserved) > 0 {
		text += fmt.Sprintf("the controller asked for what is not served: %s\n",
			strings.Join(r.Unserved, ", "))
	}
	return text + fmt.Sprintf("%d writes of the controller; %s\n", r.Writes, coverage(r))
}

// coverage returns how many disturbances of each kind happened, and names those that did not
// because the controller did something else.
func coverage(r *explorer.Report) string {
	happened, tried := map[string]int{}, map[string]int{}
	var kinds []string
	missing := ""
	for _, result := range r.Results {
		if tried[result.Kind]++; tried[result.Kind] == 1 {
			kinds = append(kinds, result.Kind)
		}
		if result.Happened {
			happened[result.Kind]++
		} else {
			missing += "\nnot reached: " + result.Name
		}
	}
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%s %d of %d", kind, happened[kind], tried[kind])
	}
	return "disturbed: " + strings.Join(kinds, ", ") + missing
}

// githubReport writes a workflow command for each finding, which GitHub shows as an error, and how
// many there are.
func githubReport(r *explorer.Report, w io.Writer) error {
	var b strings.Builder
	for _, result := range r.Results {
		if result.Report == "" {
			continue
		}
		title := githubProperty.Replace("kinproc explore: " + result.Name)
		fmt.Fprintf(&b, "::error title=%s::%s\n", title, githubMessage.Replace(result.Report))
	}
	b.WriteString(totals(r))
	_, err := io.WriteString(w, b.String())
	return err
}

// githubMessage and githubProperty escape what would end a workflow command or a property of it.
var (
	githubMessage  = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	githubProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// jsonReport writes all results.
func jsonReport(r *explorer.Report, w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Time     float64     `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Time    float64       `xml:"time,attr"`
	Failure *junitFailure `xml:"failure"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// junitReport writes all results in JUnit's format.
func junitReport(r *explorer.Report, w io.Writer) error {
	suite := junitSuite{
		Name: "kinproc explore", Tests: len(r.Results), Failures: r.Findings, Time: r.Seconds,
	}
	for _, result := range r.Results {
		c := junitCase{Class: "explore", Name: result.Name, Time: result.Seconds}
		if result.Report != "" {
			c.Failure = &junitFailure{Message: result.What, Text: result.Report}
		}
		suite.Cases = append(suite.Cases, c)
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	return encoder.Encode(suite)
}

//go:embed explore_report.html
var explorePage string

// htmlReport writes all results as a web page.
func htmlReport(r *explorer.Report, w io.Writer) error {
	page, err := template.New("explore").Parse(explorePage)
	if err != nil {
		return err
	}
	return page.Execute(w, newGrid(r))
}

// grid is a report with a table of all disturbances: what is disturbed, by kind of disturbance.
type grid struct {
	*explorer.Report
	Kinds []string
	Rows  []gridRow
}

type gridRow struct {
	At    disturb.Target
	Cells []gridCell // one for each kind
}

// gridCell has the names of findings, and texts such as "2 ok".
type gridCell struct{ Findings, Others []string }

func newGrid(r *explorer.Report) *grid {
	g := &grid{Report: r}
	all := slices.Concat(r.Results, r.NotTried)
	for _, kind := range disturb.Kinds() {
		if slices.ContainsFunc(all, func(r *explorer.Result) bool { return r.Kind == kind }) {
			g.Kinds = append(g.Kinds, kind)
		}
	}
	slices.SortStableFunc(all, func(a, b *explorer.Result) int { // the user's writes first, then objects
		return cmp.Or(-strings.Compare(a.At.By, b.At.By), a.At.Position-b.At.Position)
	})
	rows := map[disturb.Target][]*explorer.Result{}
	for _, result := range all {
		if rows[result.At] == nil {
			g.Rows = append(g.Rows, gridRow{At: result.At})
		}
		rows[result.At] = append(rows[result.At], result)
	}
	for i := range g.Rows {
		for _, kind := range g.Kinds {
			g.Rows[i].Cells = append(g.Rows[i].Cells, newCell(rows[g.Rows[i].At], kind, r.NotTried))
		}
	}
	return g
}

func newCell(results []*explorer.Result, kind string, notTried []*explorer.Result) gridCell {
	var c gridCell
	ok, notReached, untried := 0, 0, 0
	for _, r := range results {
		switch {
		case r.Kind != kind:
		case slices.Contains(notTried, r):
			untried++
		case r.Report != "":
			c.Findings = append(c.Findings, r.Name)
		case r.Happened:
			ok++
		default:
			notReached++
		}
	}
	for _, o := range []struct {
		n    int
		text string
	}{{ok, "ok"}, {notReached, "not reached"}, {untried, "not tried"}} {
		switch o.n {
		case 0:
		case 1:
			c.Others = append(c.Others, o.text)
		default:
			c.Others = append(c.Others, fmt.Sprintf("%d %s", o.n, o.text))
		}
	}
	return c
}
