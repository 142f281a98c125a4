package exchanges

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

var (
	timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	uuid      = regexp.MustCompile(
		`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)
	webToken     = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+`)
	revisionText = regexp.MustCompile(
		`(\bresourceVersion(?:: "|\\?":\\?")|ResourceVersion in record \(|` +
			`Too large resource version: \d+, current: )\d+`)
	clusterIPText = regexp.MustCompile(`(Invalid value: ")10\.0\.0\.\d+(": expected)`)
	address       = regexp.MustCompile(`^(\d+\.\d+\.\d+\.\d+|[0-9a-f:]*:[0-9a-f:]+)$`)
	nodePortText  = regexp.MustCompile(`:\d+/`)
)

var (
	// versionKept lists the fields of version.Info that do not depend on the build.
	versionKept = []string{
		"major", "minor", "emulationMajor", "emulationMinor", "minCompatibilityMajor",
		"minCompatibilityMinor",
	}
	// ageColumns lists the table columns that show an age.
	ageColumns = []string{"Age", "Last Seen", "First Seen", "Last Schedule", "Duration"}
)

// normaliser replaces values that always differ between two servers. There is one normaliser per
// case: it remembers the last resource version of every object in order to tell a write that
// changed the object from one that did not.
type normaliser struct {
	revisions map[string]string
}

func normaliseText(s string) string {
	s = timestamp.ReplaceAllString(s, "<time>")
	s = revisionText.ReplaceAllString(s, "${1}<rv>")
	s = clusterIPText.ReplaceAllString(s, "${1}<ip>${2}")
	s = uuid.ReplaceAllString(s, "<uid>")
	return webToken.ReplaceAllString(s, "<token>")
}

func (n *normaliser) value(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return n.object(v)
	case []any:
		out := make([]any, len(v))
		for i, below := range v {
			out[i] = n.value(below)
		}
		return out
	case string:
		return normaliseText(v)
	default:
		return v
	}
}

func (n *normaliser) object(o map[string]any) map[string]any {
	_, rows := o["rows"]
	_, columns := o["columnDefinitions"]
	_, git := o["gitVersion"]
	_, compiler := o["goVersion"]
	switch {
	case rows && columns:
		o = table(o)
	case o["kind"] == "SelfSubjectRulesReview":
		o = sortRules(o)
	case git && compiler:
		o = maps.Clone(o)
		for k := range o {
			if !slices.Contains(versionKept, k) {
				o[k] = "<version>"
			}
		}
	}
	out := make(map[string]any, len(o))
	for _, k := range slices.Sorted(maps.Keys(o)) {
		out[k] = n.field(o, k, o[k])
	}
	return out
}

func (n *normaliser) field(owner map[string]any, key string, v any) any {
	s, isString := v.(string)
	switch key {
	case "metadata":
		if m, ok := v.(map[string]any); ok {
			return n.metadata(owner, m)
		}
	case "clusterIP":
		if isString && address.MatchString(s) {
			return "<ip>"
		}
	case "clusterIPs":
		if list, ok := v.([]any); ok {
			list = slices.Clone(list)
			for i := range list {
				if s, ok := list[i].(string); ok && address.MatchString(s) {
					list[i] = "<ip>"
				}
			}
			return list
		}
	case "nodePort", "healthCheckNodePort":
		if port, ok := v.(json.Number); ok && port != "0" {
			return "<port>"
		}
	case "serverAddress":
		return "<server>"
	case "token":
		if isString && s != "" {
			return "<token>"
		}
	}
	return n.value(v)
}

func (n *normaliser) metadata(owner, m map[string]any) map[string]any {
	_, items := owner["items"]
	_, rows := owner["rows"]
	kind, _ := owner["kind"].(string)
	isList := items || rows || strings.HasSuffix(kind, "List")
	uid, _ := m["uid"].(string)
	out := make(map[string]any, len(m))
	for k, v := range m {
		s, _ := v.(string)
		switch {
		case k == "resourceVersion" && s != "" && (isList || uid == ""):
			out[k] = "<listrv>"
		case k == "resourceVersion" && s != "" && n.revisions[uid] == s:
			out[k] = "<rv:same>"
		case k == "resourceVersion" && s != "":
			n.revisions[uid] = s
			out[k] = "<rv:new>"
		case k == "uid" && s != "":
			out[k] = "<uid>"
		case k == "continue" && s != "":
			out[k] = "<continue>"
		case k == "name" && generated(m):
			out[k] = s[:len(s)-randomLength] + "<rand>"
		case k == "managedFields":
			out[k] = sorted(n.value(v))
		default:
			out[k] = n.value(v)
		}
	}
	return out
}

const (
	randomLength       = 5
	generatedBaseLimit = 58
)

// generated reports whether the server generated the name from generateName.
func generated(m map[string]any) bool {
	name, _ := m["name"].(string)
	base, _ := m["generateName"].(string)
	return base != "" && len(name) > randomLength &&
		name[:len(name)-randomLength] == base[:min(len(base), generatedBaseLimit)]
}

func sorted(v any) any {
	list, ok := v.([]any)
	if !ok {
		return v
	}
	slices.SortFunc(list, func(a, b any) int { return strings.Compare(marshal(a), marshal(b)) })
	return list
}

func sortRules(o map[string]any) map[string]any {
	o, _ = clone(o).(map[string]any)
	if status, ok := o["status"].(map[string]any); ok {
		for _, k := range []string{"resourceRules", "nonResourceRules"} {
			status[k] = sorted(status[k])
		}
	}
	return o
}

func table(t map[string]any) map[string]any {
	t, _ = clone(t).(map[string]any)
	var names []string
	columns, _ := t["columnDefinitions"].([]any)
	for _, c := range columns {
		names = append(names, fmt.Sprint(lookup(c, "/name")))
	}
	rows, _ := t["rows"].([]any)
	if rows == nil {
		t["rows"] = []any{}
	}
	for _, row := range rows {
		cells, _ := lookup(row, "/cells").([]any)
		m, _ := lookup(row, "/object/metadata").(map[string]any)
		for i, c := range cells {
			s, ok := c.(string)
			switch {
			case ok && i < len(names):
				cells[i] = cell(names[i], s, m)
			case ok:
				cells[i] = "<age>" // of an IPAddress: kube-apiserver declares no column for it
			}
		}
	}
	return t
}

func cell(column, s string, object map[string]any) string {
	switch {
	case slices.Contains(ageColumns, column) && s != "" && !strings.HasPrefix(s, "<"):
		return "<age>"
	case column == "Cluster-IP" && address.MatchString(s):
		return "<ip>"
	case column == "Port(s)":
		return nodePortText.ReplaceAllString(s, ":<port>/")
	case column == "Name" && generated(object) && len(s) > randomLength:
		return s[:len(s)-randomLength] + "<rand>"
	}
	return s
}
