package etcdstore

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/chain/history"
	"github.com/kinproc/kinproc/chain/secretvalues"
)

var secrets = schema.GroupResource{Resource: "secrets"}

// differences returns the fields that differ in two versions of an object, sorted by their paths.
// Every version has another resource version, which is left out.
func differences(before, after map[string]any, secret bool) []history.Change {
	d := &difference{secret: secret}
	if secret {
		d.hidden.AddSecrets([]any{before, after}, true)
	}
	d.objects("", before, after, false)
	return slices.DeleteFunc(d.changes, func(c history.Change) bool {
		return c.Path == ".metadata.resourceVersion"
	})
}

type difference struct {
	secret  bool
	hidden  secretvalues.Values
	changes []history.Change
}

func (d *difference) objects(path string, before, after map[string]any, hide bool) {
	names := slices.AppendSeq(slices.Collect(maps.Keys(before)), maps.Keys(after))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		was, had := before[name]
		is, has := after[name]
		hidden := hide || d.secret && hides(path, name)
		d.values(path+step(name), was, is, had, has, hidden)
	}
}

func (d *difference) values(path string, before, after any, had, has, hide bool) {
	if had == has && reflect.DeepEqual(before, after) {
		return
	}
	was, beforeFields := before.(map[string]any)
	is, afterFields := after.(map[string]any)
	// A map that was not there is like an empty one.
	if beforeFields && afterFields || beforeFields && !has && len(was) > 0 ||
		afterFields && !had && len(is) > 0 {
		d.objects(path, was, is, hide)
		return
	}
	olds, beforeList := before.([]any)
	news, afterList := after.([]any)
	if beforeList && afterList {
		if was, is, ok := keyed(olds, news); ok {
			d.elements(path, was, is, hide)
			return
		}
		for i := range max(len(olds), len(news)) {
			var old, new any
			if i < len(olds) {
				old = olds[i]
			}
			if i < len(news) {
				new = news[i]
			}
			d.values(fmt.Sprintf("%s[%d]", path, i), old, new, i < len(olds), i < len(news), hide)
		}
		return
	}
	if strings.HasPrefix(path, ".metadata.labels") {
		path = d.hidden.Hide(path)
	}
	d.changes = append(d.changes, history.Change{
		Path: path, Before: d.encoded(before, had, hide), After: d.encoded(after, has, hide),
	})
}

// elements compares the elements of lists that are known by a field. Their order does not count.
func (d *difference) elements(path string, before, after map[string]any, hide bool) {
	names := slices.AppendSeq(slices.Collect(maps.Keys(before)), maps.Keys(after))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		was, had := before[name]
		is, has := after[name]
		d.values(path+element(name), was, is, had, has, hide)
	}
}

// keyed returns the elements of lists by the field that tells them apart, such as containers by
// their names and conditions by their types.
func keyed(before, after []any) (was, is map[string]any, ok bool) {
	for _, field := range []string{"name", "type", "uid"} {
		if was, ok = by(field, before); !ok {
			continue
		}
		if is, ok = by(field, after); ok {
			return was, is, true
		}
	}
	return nil, nil, false
}

func by(field string, list []any) (map[string]any, bool) {
	all := map[string]any{}
	for _, element := range list {
		fields, _ := element.(map[string]any)
		name, _ := fields[field].(string)
		if name == "" || all[name] != nil {
			return nil, false
		}
		all[name] = element
	}
	return all, true
}

func (d *difference) encoded(value any, there, hide bool) json.RawMessage {
	if !there {
		return nil
	}
	if hide {
		value = hiddenSize(value)
	} else {
		value = d.hidden.HideIn(value, false)
	}
	data, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	return data
}

// step returns a field name as it is written behind a path.
func step(name string) string {
	if strings.ContainsAny(name, "./[]") || !plain(name) {
		return element(name)
	}
	return "." + name
}

// element returns the name of an element as it is written behind a path.
func element(name string) string {
	if !plain(name) {
		name = strconv.Quote(name)
	}
	return "[" + name + "]"
}

// plain reports whether a name has nothing in it that a terminal would obey.
func plain(name string) bool { return strconv.Quote(name) == `"`+name+`"` }

// hides reports whether the field of a Secret is not shown: its data, and annotations, in which
// tools keep copies of whole objects.
func hides(path, name string) bool {
	switch path {
	case "":
		return name == "data" || name == "stringData"
	case ".metadata.annotations":
		return !strings.HasPrefix(name, "kubernetes.io/")
	}
	return false
}

// hideSecret replaces what is not shown of a Secret by its size, and so it does with copies of its
// data and of that before.
func hideSecret(secret, before map[string]any) {
	var hidden secretvalues.Values
	hidden.AddSecrets([]any{secret, before}, true)
	metadata, _ := secret["metadata"].(map[string]any)
	for path, fields := range map[string]map[string]any{
		"": secret, ".metadata.annotations": asMap(metadata["annotations"]),
	} {
		for name, value := range fields {
			if !hides(path, name) {
				continue
			}
			if values, ok := value.(map[string]any); ok {
				for key, value := range values {
					values[key] = hiddenSize(value)
				}
			} else {
				fields[name] = hiddenSize(value)
			}
		}
	}
	hidden.HideIn(secret, false)
}

func asMap(value any) map[string]any { m, _ := value.(map[string]any); return m }

// hiddenSize stands for data in base64, or a text.
func hiddenSize(value any) string {
	text, ok := value.(string)
	if !ok {
		return "(not shown)"
	}
	size := len(text)
	if data, err := base64.StdEncoding.DecodeString(text); err == nil {
		size = len(data)
	}
	return fmt.Sprintf("(%d bytes, not shown)", size)
}
