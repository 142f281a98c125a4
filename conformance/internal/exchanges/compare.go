package exchanges

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// absent stands for a value that only the other response has.
type absent struct{}

func (absent) MarshalJSON() ([]byte, error) { return []byte(`"(absent)"`), nil }

// compare describes the differences between two normalised responses.
func compare(want, got *Response) []string {
	var out []string
	add := func(at string, want, got any) {
		out = append(out, fmt.Sprintf("%s: want %s, got %s", at, short(want), short(got)))
	}
	if want.Status != got.Status {
		add("status", want.Status, got.Status)
	}
	if w, g := mediaType(want.Headers.ContentType), mediaType(got.Headers.ContentType); w != g {
		add("content type", w, g)
	}
	if w, g := want.Headers.Warnings, got.Headers.Warnings; len(w) != len(g) {
		add("warnings", w, g)
	}
	w, g := relax(want.Body), relax(got.Body)
	if isFailure(w) && isFailure(g) {
		diff("body", failure(w), failure(g), add)
		return append(out, causes(w, g)...)
	}
	diff("body", w, g, add)
	return out
}

func diff(at string, want, got any, add func(string, any, any)) {
	if w, ok := want.(map[string]any); ok {
		if g, ok := got.(map[string]any); ok {
			keys := maps.Clone(w)
			maps.Copy(keys, g)
			for _, k := range slices.Sorted(maps.Keys(keys)) {
				below := at + "/" + strings.ReplaceAll(strings.ReplaceAll(k, "~", "~0"), "/", "~1")
				diff(below, orAbsent(w, k), orAbsent(g, k), add)
			}
			return
		}
	}
	if w, ok := want.([]any); ok {
		if g, ok := got.([]any); ok {
			for i := range max(len(w), len(g)) {
				var a, b any = absent{}, absent{}
				if i < len(w) {
					a = w[i]
				}
				if i < len(g) {
					b = g[i]
				}
				diff(fmt.Sprintf("%s/%d", at, i), a, b, add)
			}
			return
		}
	}
	if !isScalar(want) || !isScalar(got) || want != got {
		add(at, want, got)
	}
}

func orAbsent(o map[string]any, k string) any {
	if v, ok := o[k]; ok {
		return v
	}
	return absent{}
}

func isScalar(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

func short(v any) string {
	const most = 300
	s := marshal(v)
	if len(s) > most {
		s = s[:most] + "..."
	}
	return s
}

// mediaType returns a content type without the parameters that do not determine the form of the
// body.
func mediaType(v string) string {
	parts := strings.Split(v, ";")
	var params []string
	for _, p := range parts[1:] {
		p = strings.TrimSpace(p)
		if name, _, _ := strings.Cut(p, "="); slices.Contains([]string{"g", "v", "as"}, name) {
			params = append(params, p)
		}
	}
	slices.Sort(params)
	return strings.Join(append([]string{strings.ToLower(strings.TrimSpace(parts[0]))}, params...), ";")
}

func isFailure(v any) bool {
	return lookup(v, "/kind") == "Status" && lookup(v, "/apiVersion") == "v1" &&
		lookup(v, "/status") == "Failure"
}

// failure returns the fields of a failure Status that clients rely on, except for the causes.
func failure(v any) map[string]any {
	out := map[string]any{}
	for _, pointer := range []string{
		"/code", "/status", "/reason", "/details/name", "/details/group", "/details/kind",
	} {
		out[strings.TrimPrefix(pointer, "/")] = lookup(v, pointer)
	}
	return out
}

// causes compares how often the causes of two failures name a field with a reason.
func causes(want, got any) []string {
	w, g := causeCounts(want), causeCounts(got)
	var out []string
	for _, c := range slices.Sorted(maps.Keys(w)) {
		for range w[c] - g[c] {
			out = append(out, "causes: want "+c)
		}
	}
	for _, c := range slices.Sorted(maps.Keys(g)) {
		for range g[c] - w[c] {
			out = append(out, "causes: unwanted "+c)
		}
	}
	return out
}

// texts compares what a replay does not: the texts of warnings and failures. Their words may have
// another order, because kube-apiserver lists some things in the order of a map.
func texts(want, got *Response) []string {
	var out []string
	compare := func(what string, want, got any) {
		if words(want) != words(got) {
			out = append(out, fmt.Sprintf("%s: want %s, got %s", what, short(want), short(got)))
		}
	}
	compare("texts of warnings", want.Headers.Warnings, got.Headers.Warnings)
	if isFailure(want.Body) && isFailure(got.Body) {
		compare("message", lookup(want.Body, "/message"), lookup(got.Body, "/message"))
		compare("texts of causes", causeTexts(want.Body), causeTexts(got.Body))
	}
	return out
}

// words returns the words of all texts in a value, sorted.
func words(v any) string {
	all := strings.FieldsFunc(marshal(v), func(r rune) bool {
		return strings.ContainsRune(` ",[]{}\`, r)
	})
	slices.Sort(all)
	return strings.Join(all, " ")
}

// wordings compares the texts of causes that are about the same field for the same reason.
func wordings(want, got any) []string {
	w, g := causeTexts(want), causeTexts(got)
	address := regexp.MustCompile(`10\.0\.0\.\d+|<ip>`) // they are chosen at random
	var out []string
	for _, c := range slices.Sorted(maps.Keys(w)) {
		recorded, own := address.ReplaceAllString(w[c], "<ip>"), address.ReplaceAllString(g[c], "<ip>")
		if _, ok := g[c]; ok && recorded != own {
			out = append(out, fmt.Sprintf("%s: want %s, got %s", c, short(recorded), short(own)))
		}
	}
	return out
}

func causeTexts(v any) map[string]string {
	out := map[string]string{}
	list, _ := lookup(v, "/details/causes").([]any)
	for _, c := range list {
		field, _ := lookup(c, "/field").(string)
		reason, _ := lookup(c, "/reason").(string)
		text, _ := lookup(c, "/message").(string)
		if !strings.Contains(out[field+" "+reason], text) { // kube-apiserver repeats some
			out[field+" "+reason] += text
		}
	}
	return out
}

func causeCounts(v any) map[string]int {
	out := map[string]int{}
	list, _ := lookup(v, "/details/causes").([]any)
	for _, c := range list {
		field, _ := lookup(c, "/field").(string)
		reason, _ := lookup(c, "/reason").(string)
		out[field+" "+reason]++
	}
	return out
}

// relax drops texts that are not part of the API contract: the descriptions of table columns and
// the reasons of access reviews.
func relax(v any) any {
	o, ok := v.(map[string]any)
	if !ok {
		return v
	}
	o = maps.Clone(o)
	if stream, ok := o["stream"].([]any); ok {
		stream = slices.Clone(stream)
		for i := range stream {
			stream[i] = relax(stream[i])
		}
		o["stream"] = stream
	}
	if event, ok := o["object"].(map[string]any); ok && o["type"] != nil {
		o["object"] = relax(event)
	}
	if columns, ok := clone(o["columnDefinitions"]).([]any); ok {
		for _, c := range columns {
			if column, ok := c.(map[string]any); ok {
				delete(column, "description")
			}
		}
		o["columnDefinitions"] = columns
	}
	kind, _ := o["kind"].(string)
	if status, ok := o["status"].(map[string]any); ok && strings.HasSuffix(kind, "AccessReview") &&
		status["reason"] != nil {
		status = maps.Clone(status)
		status["reason"] = "<text>"
		o["status"] = status
	}
	return o
}
