package secretvalues_test

import (
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/kinproc/kinproc/chain/secretvalues"
)

// secret has the values Correct-Horse, pa, 12345678 with a new line, and its own name.
const secret = `{"kind":"SecretList","items":[{"metadata":{"name":"postgres","annotations":{
	"kubectl.kubernetes.io/last-applied-configuration":
	"{\"kind\":\"Secret\",\"stringData\":{\"old\":\"Battery-Staple\"}}"}},
	"data":{"a":"Q29ycmVjdC1Ib3JzZQ==","b":"cGE=","c":"MTIzNDU2NzgK","user":"cG9zdGdyZXM="}}]}`

func values(t *testing.T) (v secretvalues.Values) {
	t.Helper()
	var object any
	if err := json.Unmarshal([]byte(secret), &object); err != nil {
		t.Fatal(err)
	}
	v.AddSecrets(object, false)
	return v
}

func TestHide(t *testing.T) {
	t.Parallel()
	v := values(t)
	for text, want := range map[string]string{
		"Correct-Horse":                  "(13 bytes, not shown)",
		" Correct-Horse\n":               "(15 bytes, not shown)",
		"it is Correct-Horse!":           "it is (13 bytes, not shown)!",
		"Q29ycmVjdC1Ib3JzZQ==":           "(20 bytes, not shown)",
		"x-Q29ycmVjdC1Ib3JzZQ":           "x-(18 bytes, not shown)",
		"pa":                             "(2 bytes, not shown)",
		`Invalid value: "pa": too short`: `Invalid value: "(2 bytes, not shown)": too short`,
		"parts of words":                 "parts of words",
		`has "12345678\n" and 12345678`:  `has "(10 bytes, not shown)" and (8 bytes, not shown)`,
		"Battery-Staple":                 "(14 bytes, not shown)",
		"postgres":                       "postgres",
		"(13 bytes, not shown)":          "(13 bytes, not shown)",
		"":                               "",
		base64.URLEncoding.EncodeToString([]byte("pa")): "(4 bytes, not shown)",
	} {
		if got := v.Hide(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	var none secretvalues.Values
	if got := none.Hide("pa"); got != "pa" {
		t.Errorf("without values, got %q", got)
	}
}

func TestHideIn(t *testing.T) {
	t.Parallel()
	const hidden = "(13 bytes, not shown)"
	v := values(t)
	for document, want := range map[string]string{
		`{"kind":"pa","metadata":{"name":"Correct-Horse","namespace":"pa","finalizers":["pa"],
			"labels":{"kind":"Correct-Horse","Correct-Horse":"x"}}}`: `{"kind":"pa","metadata":{
			"name":"Correct-Horse","namespace":"pa","finalizers":["(2 bytes, not shown)"],
			"labels":{"kind":"` + hidden + `","` + hidden + `":"x"}}}`,
		`[{"path":"/metadata/labels/x","value":"Correct-Horse"}]`: `[{"path":"/metadata/labels/x",
			"value":"` + hidden + `"}]`,
	} {
		var got, wanted any
		err1 := json.Unmarshal([]byte(document), &got)
		err2 := json.Unmarshal([]byte(want), &wanted)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if got = v.HideIn(got, false); !reflect.DeepEqual(got, wanted) {
			t.Errorf("%s: got %v, want %v", document, got, wanted)
		}
	}
	made := map[string]any{"metadata": map[string]any{"name": "Correct-Horse-x7k2p"}}
	if got := v.HideIn(made, true); strings.Contains(got.(map[string]any)["metadata"].(map[string]any)["name"].(string), "Horse") {
		t.Errorf("a name that the server has made is %v", got)
	}
}
