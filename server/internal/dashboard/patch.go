package dashboard

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// notRead are the fields of a Secret that the dashboard does not show, as the parts of pointers.
var notRead = [][]string{{"data"}, {"stringData"}, {"metadata", "annotations"}}

// operation is an operation of a JSON patch, by the names of its fields, which are case-sensitive.
type operation map[string]any

func (o operation) text(field string) string {
	text, _ := o[field].(string)
	return text
}

// operations returns the operations of a JSON patch. Of what is none, the server says what is
// wrong.
func operations(body []byte, contentType string) (list []operation) {
	if contentType == string(types.JSONPatchType) {
		_ = json.Unmarshal(body, &list)
	}
	return list
}

// checkPatch refuses a JSON patch of a Secret that copies what the dashboard does not show to where
// it would be shown, or that asks whether it has guessed it.
func checkPatch(list []operation) error {
	for _, o := range list {
		kind, from := o.text("op"), o.text("from")
		if kind == "test" {
			from = o.text("path")
		} else if kind != "copy" && kind != "move" {
			continue
		}
		if slices.ContainsFunc(notRead, func(field []string) bool { return overlap(from, field) }) {
			return badInput("The operation %s reads %q, and the dashboard does not read the data and the "+
				"annotations of a Secret. Write the value with add or replace, or use kubectl.", kind, from)
		}
	}
	return nil
}

// overlap reports whether a JSON pointer leads to a field, to a part of it, or to something that
// contains it. As for the server, it does not matter what is before the first slash.
func overlap(pointer string, field []string) bool {
	parts := strings.Split(pointer, "/")[1:]
	for len(parts) > 0 && parts[len(parts)-1] == "" {
		parts = parts[:len(parts)-1]
	}
	for i := range min(len(parts), len(field)) {
		part := parts[i]
		if unescaped, err := url.PathUnescape(part); err == nil {
			part = unescaped
		}
		if strings.NewReplacer("~1", "/", "~0", "~").Replace(part) != field[i] {
			return false
		}
	}
	return true
}

// addRequest adds the data of Secrets that a request for some writes.
func (h *hiding) addRequest(body []byte, list []operation) {
	for _, o := range list {
		for _, field := range []string{"data", "stringData"} {
			if !overlap(o.text("path"), []string{field}) {
				continue
			}
			if object, ok := o["value"].(map[string]any); ok && object[field] != nil {
				h.values.AddSecrets(object, true)
			} else {
				h.values.Add(o["value"], field == "data")
			}
		}
	}
	if list == nil {
		h.add(body, true)
	}
}
