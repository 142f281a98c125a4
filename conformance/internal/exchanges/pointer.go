package exchanges

import (
	"strconv"
	"strings"
)

func unescape(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
}

func tokens(pointer string) []string {
	parts := strings.Split(pointer, "/")[1:]
	for i := range parts {
		parts[i] = unescape(parts[i])
	}
	return parts
}

// lookup returns the value at a JSON pointer, or nil if there is none.
func lookup(doc any, pointer string) any {
	if pointer == "" {
		return doc
	}
	for _, token := range tokens(pointer) {
		switch at := doc.(type) {
		case map[string]any:
			doc = at[token]
		case []any:
			i, ok := index(token, at)
			if !ok {
				return nil
			}
			doc = at[i]
		default:
			return nil
		}
	}
	return doc
}

func index(token string, list []any) (int, bool) {
	i, err := strconv.Atoi(token)
	return i, err == nil && i >= 0 && i < len(list)
}

// set returns doc with the value set at a path. It creates missing containers: a list if the next
// token is "-" or "0", and an object otherwise. A "-" or an index past the end of a list appends.
func set(doc any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	token, rest := path[0], path[1:]
	if list, ok := doc.([]any); ok {
		if i, ok := index(token, list); ok {
			list[i] = set(list[i], rest, value)
			return list
		}
		return append(list, set(container(rest), rest, value))
	}
	object, ok := doc.(map[string]any)
	if !ok {
		object = map[string]any{}
	}
	below := object[token]
	switch below.(type) {
	case map[string]any, []any:
	default:
		below = container(rest)
	}
	object[token] = set(below, rest, value)
	return object
}

func container(path []string) any {
	switch {
	case len(path) == 0:
		return nil
	case path[0] == "-" || path[0] == "0":
		return []any{}
	default:
		return map[string]any{}
	}
}

// remove returns doc without the value at a path.
func remove(doc any, path []string) any {
	switch at := doc.(type) {
	case map[string]any:
		if len(path) == 1 {
			delete(at, path[0])
		} else if below, ok := at[path[0]]; ok {
			at[path[0]] = remove(below, path[1:])
		}
	case []any:
		i, ok := index(path[0], at)
		switch {
		case !ok:
		case len(path) == 1:
			return append(at[:i], at[i+1:]...)
		default:
			at[i] = remove(at[i], path[1:])
		}
	}
	return doc
}

// clone copies a JSON value.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		c := make(map[string]any, len(v))
		for k, below := range v {
			c[k] = clone(below)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, below := range v {
			c[i] = clone(below)
		}
		return c
	default:
		return v
	}
}

// contains reports whether got has all that want has: the keys of objects, and the elements of
// lists in any order.
func contains(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		for k, v := range want {
			below, has := object[k]
			ok = ok && has && contains(below, v)
		}
		return ok
	case []any:
		list, ok := got.([]any)
		for _, v := range want {
			found := false
			for _, element := range list {
				found = found || contains(element, v)
			}
			ok = ok && found
		}
		return ok
	default:
		return got == want
	}
}
