package exchanges

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

var placeholder = regexp.MustCompile(`\$\{(\d+):([^}]*)\}`)

// fill replaces the placeholders in all strings of a value with values from earlier responses.
func fill(v any, live []any) any {
	switch v := v.(type) {
	case string:
		return fillString(v, live, func(s string) string { return s })
	case []any:
		c := make([]any, len(v))
		for i, below := range v {
			c[i] = fill(below, live)
		}
		return c
	case map[string]any:
		c := make(map[string]any, len(v))
		for k, below := range v {
			c[fillString(k, live, func(s string) string { return s })] = fill(below, live)
		}
		return c
	default:
		return v
	}
}

func fillString(s string, live []any, escape func(string) string) string {
	if !strings.Contains(s, "${") {
		return s
	}
	return placeholder.ReplaceAllStringFunc(s, func(match string) string {
		m := placeholder.FindStringSubmatch(match)
		step, err := strconv.Atoi(m[1])
		if err != nil || step >= len(live) {
			return ""
		}
		switch v := lookup(live[step], m[2]).(type) {
		case nil:
			return ""
		case string:
			return escape(v)
		default:
			return escape(marshal(v))
		}
	})
}

func marshal(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err.Error() // never happens for JSON values
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// resolved is a request that is ready to be sent.
type resolved struct {
	method, path string
	header       http.Header
	body         string
}

func (r *Request) resolve(token string, live []any) resolved {
	out := resolved{
		method: r.Method,
		path: fillString(r.Path, live, func(s string) string {
			return strings.ReplaceAll(url.QueryEscape(s), "+", "%20")
		}),
		header: http.Header{
			"User-Agent":      {"recorder/1.0"},
			"Accept":          {"application/json"},
			"Accept-Encoding": {"identity"},
		},
	}
	if token != "" {
		out.header.Set("Authorization", "Bearer "+token)
	}
	typed := false
	for name, value := range r.Headers {
		typed = typed || strings.EqualFold(name, "Content-Type")
		if value == nil {
			out.header.Del(name)
		} else {
			out.header.Set(name, fillString(*value, live, func(s string) string { return s }))
		}
	}
	switch body := r.content(live).(type) {
	case nil:
	case string:
		out.body = body
	default:
		out.body = marshal(body)
		if !typed {
			out.header.Set("Content-Type", "application/json")
		}
	}
	return out
}

func (r *Request) content(live []any) any {
	body := fill(r.Body, live)
	if from := r.BodyFrom; from != nil {
		body = map[string]any{}
		if from.Step < len(live) {
			if object, ok := live[from.Step].(map[string]any); ok {
				body = clone(object)
			}
		}
		for _, pointer := range from.Remove {
			body = remove(body, tokens(pointer))
		}
		for _, s := range from.Set {
			if pointer, ok := s[0].(string); ok {
				body = set(body, tokens(pointer), fill(s[1], live))
			}
		}
	}
	if object, ok := body.(map[string]any); ok && r.BodyPad != nil {
		body = set(clone(object), tokens(r.BodyPad.Pointer), strings.Repeat("a", r.BodyPad.Size))
	}
	return body
}
