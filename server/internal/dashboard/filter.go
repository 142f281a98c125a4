package dashboard

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kinproc/kinproc/chain/trace"
)

// filter selects requests. Empty fields select all.
type filter struct {
	method, path, agent string
	user                string        // one that begins with - selects the others
	code                string        // "404", or the first digit of a class
	slow                time.Duration // the shortest one
	at                  string        // a box in the picture of the chain
	loops               bool          // whether to show those of control loops
}

// filterOf returns the filter of a query.
func filterOf(q url.Values) (filter, error) {
	f := filter{
		method: q.Get("method"), path: q.Get("path"), user: q.Get("user"), agent: q.Get("agent"),
		code: strings.ToLower(strings.TrimSpace(q.Get("code"))), at: q.Get("at"),
		loops: q.Get("loops") != "",
	}
	f.code = strings.TrimSuffix(f.code, "xx")
	if n, err := strconv.Atoi(f.code); f.code != "" && (err != nil || n < 1 || n > 999) {
		return f, badInput("%q is not a status code: use one such as 404, or 4xx.", q.Get("code"))
	}
	if slow := strings.TrimSpace(q.Get("slow")); slow != "" {
		n, err := strconv.ParseFloat(slow, 64)
		if err != nil || !(n >= 0 && n < 1e9) {
			return f, badInput("%q is not a number of milliseconds.", slow)
		}
		f.slow = time.Duration(n * float64(time.Millisecond))
	}
	if f.at != "" && f.at != clientsBox && !slices.Contains(places, f.at) &&
		!slices.Contains([]string{extensionServersBox, webhooksBox, etcdBox}, f.at) {
		return f, badInput("%q is not in the picture of the chain.", f.at)
	}
	return f, nil
}

// selects reports whether a request passes the filter, whoever's loop it is of.
func (f filter) selects(r *trace.Request, s *summary) bool {
	if f.method != "" && !strings.EqualFold(f.method, r.Method) ||
		!strings.Contains(r.Path, f.path) || r.Took < f.slow || !f.reaches(r, s) ||
		!strings.HasPrefix(strconv.Itoa(r.Code), f.code) {
		return false
	}
	if f.agent != "" && !strings.Contains(r.UserAgent, f.agent) &&
		!strings.Contains(s.Client, f.agent) {
		return false
	}
	if other, not := strings.CutPrefix(f.user, "-"); not {
		return other == "" || !strings.Contains(r.User, other)
	}
	return strings.Contains(r.User, f.user)
}

// reaches reports whether a server has answered a request, or whether it has passed another box.
func (f filter) reaches(r *trace.Request, s *summary) bool {
	switch {
	case f.at == "" || f.at == clientsBox:
		return true
	case slices.Index(places, f.at) >= aggregatorPlace:
		return s.End == f.at
	}
	return calls(r, f.at)
}

// loopPrograms are the programs of the control plane itself.
var loopPrograms = []string{"kube-controller-manager", "kube-scheduler", "kubelet"}

// clientOf returns what the client of a request calls itself, without version and platform, and
// whether it is the control plane itself. A control loop adds its name to the user agent of its
// program, after the last slash.
func clientOf(r *trace.Request) (name string, loop bool) {
	return clientOfAgent(r.User, r.UserAgent)
}

func clientOfAgent(user, agent string) (name string, loop bool) {
	program, _, _ := strings.Cut(agent, "/")
	loop = user == "system:apiserver" || slices.Contains(loopPrograms, program)
	if !loop {
		return program, false
	}
	// A real kube-controller-manager has its platform and commit before the name.
	parts := strings.Split(agent, "/")
	if last := parts[len(parts)-1]; len(parts) > 2 && strings.Contains(last, "-") &&
		!strings.ContainsAny(last, " ()") {
		return last, true
	}
	return program, true
}
