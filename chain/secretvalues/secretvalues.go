// Package secretvalues hides the values of the data of Secrets in whatever else is shown of them:
// in labels to which somebody has copied a value, or in the message of a webhook that repeats one.
// Its names are for packages of this module only.
package secretvalues

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// LastApplied is the annotation in which kubectl apply keeps a whole object.
const LastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// shortest is how long a value must be to be hidden within a text. A shorter one, such as "prod",
// is hidden where it is a whole text or stands in quotes. Otherwise it would be hidden in parts of
// words too.
const shortest = 6

// placeholder matches what Size returns.
var placeholder = regexp.MustCompile(`\((\d+ bytes, )?not shown\)`)

// Placeholder returns the first text in another that stands for a value, or nothing.
func Placeholder(text string) string { return placeholder.FindString(text) }

// Size returns what stands for a value that is not shown. For what stands for a value already, it
// is the same.
func Size(value any) string {
	text, ok := value.(string)
	switch {
	case !ok:
		return "(not shown)"
	case Placeholder(text) == text && text != "":
		return text
	}
	return fmt.Sprintf("(%d bytes, not shown)", len(text))
}

// Values are values to hide. The zero value has none.
type Values struct {
	forms    map[string]bool // as the values are, and in base64
	replacer *strings.Replacer
}

// AddSecrets adds the data of all Secrets in a decoded JSON value, which may be anything that has
// Secrets in it. With secrets, every object in it is one, whatever it says.
func (v *Values) AddSecrets(value any, secrets bool) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			v.AddSecrets(element, secrets)
		}
	case map[string]any:
		kind, _ := value["kind"].(string)
		secrets = secrets || kind == "SecretList" // whose items do not say what they are
		if secrets || kind == "Secret" {
			v.addSecret(value)
		}
		if kept, ok := value[LastApplied].(string); ok {
			var object any
			if json.Unmarshal([]byte(kept), &object) == nil {
				v.AddSecrets(object, secrets)
			}
		}
		for _, element := range value {
			v.AddSecrets(element, secrets)
		}
	}
}

// addSecret adds the data of one Secret. A value that is also its name or its namespace, as in the
// token of a service account, is not hidden: it is part of every path to the Secret.
func (v *Values) addSecret(secret map[string]any) {
	metadata, _ := secret["metadata"].(map[string]any)
	for field, encoded := range map[string]bool{"data": true, "stringData": false} {
		data, ok := secret[field].(map[string]any)
		if !ok {
			v.Add(secret[field], encoded)
			continue
		}
		for _, value := range data {
			plain := value
			if text, ok := value.(string); ok && encoded {
				if decoded, err := base64.StdEncoding.DecodeString(text); err == nil {
					plain = string(decoded)
				}
			}
			if plain != metadata["name"] && plain != metadata["namespace"] {
				v.Add(value, encoded)
			}
		}
	}
}

// Add adds all texts and numbers in a decoded JSON value. Encoded says that they are base64.
func (v *Values) Add(value any, encoded bool) {
	switch value := value.(type) {
	case string:
		plain := value
		if encoded {
			v.add(value)
			decoded, err := base64.StdEncoding.DecodeString(value)
			if err != nil {
				return
			}
			plain = string(decoded)
		}
		v.addPlain(plain)
	case json.Number:
		v.addPlain(value.String())
	case []any:
		for _, element := range value {
			v.Add(element, encoded)
		}
	case map[string]any:
		for _, element := range value {
			v.Add(element, encoded)
		}
	}
}

func (v *Values) addPlain(plain string) {
	for _, text := range []string{plain, strings.TrimSpace(plain)} {
		if utf8.ValidString(text) { // nothing that is shown is anything else
			v.add(text)
			v.add(strings.Trim(strconv.Quote(text), `"`))
		}
		for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
			form := encoding.EncodeToString([]byte(text))
			v.add(form)
			v.add(strings.TrimRight(form, "="))
		}
	}
}

func (v *Values) add(form string) {
	if form == "" {
		return
	}
	if v.forms == nil {
		v.forms = map[string]bool{}
	}
	v.forms[form], v.replacer = true, nil
}

// Hide returns a text with the values replaced by their sizes.
func (v *Values) Hide(text string) string {
	switch {
	case len(v.forms) == 0 || text == "" || Placeholder(text) == text:
		return text
	case v.forms[strings.TrimSpace(text)]:
		return Size(text)
	}
	if v.replacer == nil {
		forms := make([]string, 0, len(v.forms))
		for form := range v.forms {
			forms = append(forms, form)
		}
		// A value may be part of another one.
		slices.SortFunc(forms, func(a, b string) int {
			return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
		})
		var pairs []string
		for _, form := range forms {
			if len(form) >= shortest {
				pairs = append(pairs, form, Size(form))
			} else {
				pairs = append(pairs, `"`+form+`"`, `"`+Size(form)+`"`)
			}
		}
		v.replacer = strings.NewReplacer(pairs...)
	}
	return v.replacer.Replace(text)
}

// HideIn hides the values in all texts of a decoded JSON value, which it changes and returns. It
// leaves alone what the server sets and what is part of the path to an object: kinds, versions,
// UIDs, namespaces, and names unless their server has just made them.
func (v *Values) HideIn(value any, names bool) any {
	if len(v.forms) == 0 {
		return value
	}
	return v.hideIn(value, "", names)
}

func (v *Values) hideIn(value any, in string, names bool) any {
	switch value := value.(type) {
	case string:
		return v.Hide(value)
	case []any:
		for i := range value {
			value[i] = v.hideIn(value[i], "", names)
		}
	case map[string]any:
		_, isObject := value["kind"]
		for _, key := range slices.Collect(maps.Keys(value)) {
			element := value[key]
			switch {
			case in == "labels" || in == "annotations":
				delete(value, key)
				value[v.Hide(key)] = v.hideIn(element, "", names)
			case isObject && (key == "kind" || key == "apiVersion"):
			case in == "metadata" && slices.Contains(known, key):
			case in == "metadata" && key == "name" && !names:
			default:
				value[key] = v.hideIn(element, key, names)
			}
		}
	}
	return value
}

// known are the fields of metadata into which nobody can copy anything.
var known = []string{
	"namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp",
}
