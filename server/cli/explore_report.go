package cli

import (
	_ "embed"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"time"

	"github.com/kinproc/kinproc/server/internal/disturb"
)

// exploreReport is what kinproc explore has found.
type exploreReport struct {
	Seconds  float64          `json:"seconds"`
	Findings int              `json:"findings"`
	Results  []*exploreResult `json:"disturbances"`
	NotTried int              `json:"notTried,omitempty"`
}

// exploreResult is the result of one disturbance.
type exploreResult struct {
	Name    string  `json:"name"`
	What    string  `json:"what"`
	At      string  `json:"at"`
	Seconds float64 `json:"seconds"`
	// Happened is false if the controller did not do this time what was to be disturbed.
	Happened bool     `json:"happened"`
	Problems []string `json:"problems,omitempty"`
	// Once is true if a second try had no problem.
	Once bool `json:"once,omitempty"`
	// Report is the finding as text. It is empty if there is none.
	Report string `json:"-"`
}

func newExploreResult(
	d disturb.Disturbance, o *disturb.Outcome, f *disturb.Finding, took time.Duration,
) *exploreResult {
	r := &exploreResult{
		Name: d.Name(), What: d.What(), At: d.At.String(), Seconds: took.Seconds(), Happened: o.Fired,
	}
	if f != nil {
		r.Problems, r.Once, r.Report = f.Problems, f.Once, f.String()
	}
	return r
}

func newExploreReport(results []*exploreResult, took time.Duration) *exploreReport {
	r := &exploreReport{Seconds: took.Seconds(), Results: []*exploreResult{}}
	for _, result := range results {
		switch {
		case result == nil:
			r.NotTried++
			continue
		case result.Report != "":
			r.Findings++
		}
		r.Results = append(r.Results, result)
	}
	return r
}

// write writes the report to standard output, and to the files that the flags name.
func (r *exploreReport) write(s streams, o *exploreOptions) error {
	if o.output == "json" {
		encoder := json.NewEncoder(s.out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(r); err != nil {
			return err
		}
	} else {
		for _, result := range r.Results {
			if result.Report != "" {
				fmt.Fprintf(s.out, "%s\n", result.Report)
			}
		}
		fmt.Fprintf(s.out, "%d disturbances, %d findings\n", len(r.Results), r.Findings)
		if r.NotTried > 0 {
			fmt.Fprintf(s.out, "%d disturbances were not tried\n", r.NotTried)
		}
	}
	var errs []error
	for _, file := range []struct {
		path  string
		write func(io.Writer) error
	}{{o.junit, r.writeJUnit}, {o.report, r.writeHTML}} {
		if file.path != "" {
			errs = append(errs, writeReport(file.path, file.write))
		}
	}
	return errors.Join(errs...)
}

func writeReport(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
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

func (r *exploreReport) writeJUnit(w io.Writer) error {
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

//go:embed explore.html
var explorePage string

func (r *exploreReport) writeHTML(w io.Writer) error {
	page, err := template.New("explore").Parse(explorePage)
	if err != nil {
		return err
	}
	return page.Execute(w, r)
}
