package explorer

import (
	"time"

	"github.com/kinproc/kinproc/server/internal/disturb"
)

// Report is what an exploration has found.
type Report struct {
	Seconds  float64   `json:"seconds"`
	Findings int       `json:"findings"`
	Results  []*Result `json:"disturbances"`
	NotTried []*Result `json:"notTried,omitempty"`
	Writes   int       `json:"writes"` // of the controller, undisturbed
	// Unserved are the group versions that the controller has asked for and that are not served.
	Unserved []string `json:"unserved,omitempty"`
	// OverBudget is whether disturbances were not tried because the budget had run out.
	OverBudget bool `json:"-"`
}

// Result is the result of one disturbance.
type Result struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	What string `json:"what"`
	// At is the write that is disturbed, or the object or the resource whose events are.
	At disturb.Target `json:"at"`
	// Then is the second write of a pair, at which the controller crashes too.
	Then    *disturb.Target `json:"then,omitempty"`
	Seconds float64         `json:"seconds"`
	// Happened is false if the controller did not do this time what was to be disturbed.
	Happened bool `json:"happened"`
	// Finding is nil if the controller has recovered.
	Finding *disturb.Finding `json:"finding,omitempty"`
	// Report is the finding as text. It is empty if there is none.
	Report string `json:"report,omitempty"`

	pairs []disturb.Disturbance // that begin with this one, unless it is a finding
}

// newResult returns the result of a disturbance that has not been tried yet.
func newResult(d disturb.Disturbance) *Result {
	r := &Result{Name: d.Name(), Kind: d.KindName(), What: d.What(), At: d.Target()}
	if d.Then.Kind != disturb.None {
		then := d.Then.Target()
		r.Then = &then
	}
	return r
}

// newReport returns the report of some disturbances, whose results are nil if they were not tried.
func newReport(all []disturb.Disturbance, results []*Result, took time.Duration) *Report {
	r := &Report{Seconds: took.Seconds(), Results: []*Result{}}
	for i, result := range results {
		switch {
		case result == nil:
			r.NotTried = append(r.NotTried, newResult(all[i]))
			continue
		case result.Report != "":
			r.Findings++
		}
		r.Results = append(r.Results, result)
	}
	return r
}
