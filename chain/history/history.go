// Package history is about the versions of objects that etcd still keeps: what the server's history
// looks like, and how a client reads it.
//
// The history of what /api/v1/namespaces/default/configmaps/limits returns is at [Path] followed by
// that path. It is for those who may both get and list such objects.
package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Path is what the URLs of histories begin with.
const Path = "/kinproc/v1/history"

// Writer is who wrote a version.
type Writer struct {
	User string `json:"user"`
	// Impersonator is the authenticated user if User was impersonated.
	Impersonator string `json:"impersonator,omitempty"`
	UserAgent    string `json:"userAgent,omitempty"`
	// Verb is that of authorization, such as "patch". It is that of the request, which may have
	// written other objects too.
	Verb        string `json:"verb,omitempty"`
	Subresource string `json:"subresource,omitempty"`
	// Manager is the field manager.
	Manager string `json:"manager,omitempty"`
}

// What happened to an object.
const (
	Created = "created"
	Updated = "updated"
	Deleted = "deleted"
)

// Version is a version of an object, or its deletion.
type Version struct {
	Revision int64 `json:"revision"`
	// Event is [Created], [Updated] or [Deleted].
	Event string `json:"event"`
	// Time and Writer are nil if the server does not know them: the version is too old, or somebody
	// else wrote it.
	Time   *time.Time `json:"time,omitempty"`
	Writer *Writer    `json:"writer,omitempty"`
	// Resource is such as "deployments.apps".
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Object is the object as it is stored, without its managed fields and the data of a Secret.
	// That of a deletion is the object as it was before.
	Object json.RawMessage `json:"object,omitempty"`
	// Changes are the differences from the version before. They are empty for a created and for a
	// deleted object, and if the version before is no longer kept.
	Changes []Change `json:"changes,omitempty"`
}

// String returns a line such as
//
//	15:04:05.000 revision 210: configmaps default/limits updated by jane (kubectl/v1.37.2, patch)
func (v Version) String() string {
	client := ""
	if v.Writer != nil {
		client, _, _ = strings.Cut(v.Writer.UserAgent, " ")
	}
	return v.Line(client)
}

// Line returns the line of [Version.String] with another text for the client that wrote the
// version.
func (v Version) Line(client string) string {
	name := v.Name
	if v.Namespace != "" {
		name = v.Namespace + "/" + name
	}
	line := fmt.Sprintf("revision %d: %s %s %s", v.Revision, v.Resource, name, v.Event)
	if v.Time != nil {
		line = v.Time.Local().Format("15:04:05.000") + " " + line
	}
	if w := v.Writer; w != nil {
		line += " by " + w.User
		if how := strings.Trim(client+", "+w.Verb+" "+w.Subresource, ", "); how != "" {
			line += " (" + how + ")"
		}
	}
	return line
}

// Summary returns a line for each of the first n changes, and one that says how many more there
// are.
func (v Version) Summary(n int) []string {
	var lines []string
	for i, c := range v.Changes {
		if i == n {
			more := fmt.Sprintf("… %d more changes", len(v.Changes)-n)
			if len(v.Changes) == n+1 {
				more = "… 1 more change"
			}
			return append(lines, more)
		}
		lines = append(lines, c.String())
	}
	return lines
}

// Change is the change of a field.
type Change struct {
	// Path is such as ".spec.containers[0].image".
	Path string `json:"path"`
	// Before and After are nil if the field was or is not there.
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// maxValue limits the values of a change in a text.
const maxValue = 100

// String returns a line such as
//
//	~ .spec.replicas: 1 → 3
//
// It begins with + if the field was not there before, and with - if it is no longer there. Long
// values are cut.
func (c Change) String() string {
	switch {
	case c.Before == nil:
		return fmt.Sprintf("+ %s: %s", c.Path, cut(c.After))
	case c.After == nil:
		return fmt.Sprintf("- %s: %s", c.Path, cut(c.Before))
	}
	return fmt.Sprintf("~ %s: %s → %s", c.Path, cut(c.Before), cut(c.After))
}

func cut(value json.RawMessage) string {
	var line bytes.Buffer
	if json.Compact(&line, value) != nil {
		return "?"
	}
	if line.Len() > maxValue {
		return strings.ToValidUTF8(string(line.Bytes()[:maxValue]), "") + "…"
	}
	return line.String()
}

// History is what the server answers.
type History struct {
	// Revision is the newest revision of all objects.
	Revision int64 `json:"revision"`
	// Versions are in the order of their revisions.
	Versions []Version `json:"versions"`
	// More is true if the history has older versions, beyond the limit.
	More bool `json:"more,omitempty"`
	// Compacted is true if etcd has removed old revisions, so that versions may be missing.
	Compacted bool `json:"compacted,omitempty"`
	// Before is not 0 if the search took so long that it ended early: what was written before this
	// revision has not been looked at. A request with [Options.Before] continues there.
	Before int64 `json:"before,omitempty"`
}

// Options select versions.
type Options struct {
	// Limit is the number of versions, the newest ones. Zero stands for [DefaultLimit], and
	// [MaxLimit] is the maximum.
	Limit int
	// Labels, if not empty, is a label selector.
	Labels string
	// Contents, for the path of a namespace, selects all objects in it that the user may get and
	// list.
	Contents bool
	// At, for the path of one object, selects the version at this revision.
	At int64
	// Before, if not 0, selects versions before this revision.
	Before int64
}

// The limits of the number of versions.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)

// Query returns the options as the query of a request.
func (o Options) Query() url.Values {
	query := url.Values{}
	if o.Limit != 0 {
		query.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.Labels != "" {
		query.Set("labelSelector", o.Labels)
	}
	if o.Contents {
		query.Set("contents", "true")
	}
	if o.At != 0 {
		query.Set("revision", strconv.FormatInt(o.At, 10))
	}
	if o.Before != 0 {
		query.Set("before", strconv.FormatInt(o.Before, 10))
	}
	return query
}

// ParseOptions is the reverse of [Options.Query]. It leaves out the parameter watch. It returns an
// error for parameters that do not exist.
func ParseOptions(query url.Values) (o Options, err error) {
	o.Limit = DefaultLimit
	for key, values := range query {
		value := values[len(values)-1]
		switch key {
		case "watch":
		case "limit":
			if o.Limit, err = strconv.Atoi(value); err != nil || o.Limit < 1 || o.Limit > MaxLimit {
				return o, fmt.Errorf("limit: %q is not a number from 1 to %d", value, MaxLimit)
			}
		case "labelSelector":
			o.Labels = value
		case "contents":
			if o.Contents, err = strconv.ParseBool(value); err != nil {
				return o, fmt.Errorf("contents: %q is neither true nor false", value)
			}
		case "revision":
			if o.At, err = strconv.ParseInt(value, 10, 64); err != nil || o.At < 1 {
				return o, fmt.Errorf("revision: %q is not a positive number", value)
			}
		case "before":
			if o.Before, err = strconv.ParseInt(value, 10, 64); err != nil || o.Before < 1 {
				return o, fmt.Errorf("before: %q is not a positive number", value)
			}
		default:
			return o, fmt.Errorf("%q is not a parameter: use limit, labelSelector, contents, revision, "+
				"before or watch", key)
		}
	}
	return o, nil
}
