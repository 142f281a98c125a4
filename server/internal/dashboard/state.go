package dashboard

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// state is how an object does, at one glance.
type state string

const (
	failing     state = "failing"
	pending     state = "pending"
	terminating state = "terminating"
	ready       state = "ready"
	done        state = "done"
)

// words are the states that words in columns stand for.
var words = map[string]state{
	"active": ready, "available": ready, "bound": ready, "ready": ready, "running": ready,
	"established": ready, "healthy": ready, "true": ready, "approved": ready,
	"complete": done, "completed": done, "succeeded": done, "released": done,
	"pending": pending, "unknown": pending, "progressing": pending, "containercreating": pending,
	"podinitializing": pending, "schedulinggated": pending, "suspended": pending,
	"waiting": pending, "notready": failing, "denied": failing,
	"failed": failing, "error": failing, "false": failing, "lost": failing, "degraded": failing,
	"terminating": terminating, "deleting": terminating,
}

// stateOf returns the state of an object by the cells of its row, which kubectl shows too. It is
// empty for objects that do not have one.
func stateOf(resource schema.GroupResource, cell func(string) string, deleted bool) state {
	if deleted {
		return terminating
	}
	switch resource.String() {
	case "pods":
		return podState(cell("Status"), cell("Ready"))
	case "deployments.apps", "statefulsets.apps":
		return whole(cell("Ready"))
	case "replicasets.apps", "replicationcontrollers", "daemonsets.apps":
		return whole(cell("Ready") + "/" + cell("Desired"))
	case "jobs.batch":
		if s := words[strings.ToLower(cell("Status"))]; s != "" && s != ready {
			return s
		}
		if whole(cell("Completions")) == ready {
			return done
		}
		return pending // it runs
	case "nodes":
		status, more, _ := strings.Cut(cell("Status"), ",")
		if s := words[strings.ToLower(status)]; s != ready || more == "" {
			return s
		}
		return pending // unschedulable
	case "apiservices.apiregistration.k8s.io":
		// in parentheses is why not
		word, _, _ := strings.Cut(cell("Available"), " ")
		return words[strings.ToLower(word)]
	case "roles.rbac.authorization.k8s.io", "leases.coordination.k8s.io":
		return ""
	}
	for _, column := range []string{"Ready", "Available", "Status", "Phase", "State"} {
		text := cell(column)
		if s := words[strings.ToLower(text)]; s != "" {
			return s
		}
		if s := whole(text); s != "" {
			return s
		}
	}
	return ""
}

func podState(status, containers string) state {
	if strings.HasPrefix(status, "Init:") && strings.Contains(status, "/") {
		return pending
	}
	switch s := words[strings.ToLower(status)]; s {
	case ready:
		return whole(containers)
	case "":
		return failing // the reason why a container does not run
	default:
		return s
	}
}

// whole returns the state of something that says how many of its parts are ready, such as 2/3.
func whole(parts string) state {
	now, wanted, ok := strings.Cut(parts, "/")
	if !ok || now == "" || strings.Trim(now+wanted, "0123456789") != "" {
		return ""
	}
	if now == wanted {
		return ready
	}
	return pending
}
