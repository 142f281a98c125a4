package etcdstore

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestDifferences(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ before, after, want string }{
		"nothing":         {`{"a":{"b":1}}`, `{"a":{"b":1}}`, ""},
		"version":         {`{"metadata":{"resourceVersion":"1"}}`, `{"metadata":{"resourceVersion":"2"}}`, ""},
		"field":           {`{"a":{"b":1}}`, `{"a":{"b":2}}`, ".a.b 1 2"},
		"new map":         {`{}`, `{"a":{"b":1,"c.d":"x"}}`, `.a.b  1;.a[c.d]  "x"`},
		"empty map":       {`{}`, `{"a":{}}`, ".a  {}"},
		"removed map":     {`{"a":{"b":1}}`, `{}`, ".a.b 1 "},
		"map to value":    {`{"a":{"b":1}}`, `{"a":1}`, `.a {"b":1} 1`},
		"null":            {`{}`, `{"a":null}`, ".a  null"},
		"list":            {`{"a":[1,2,3]}`, `{"a":[1,3]}`, ".a[1] 2 3;.a[2] 3 "},
		"list by name":    {`{"a":[{"name":"x","v":1},{"name":"y"}]}`, `{"a":[{"name":"y"},{"name":"x","v":2}]}`, ".a[x].v 1 2"},
		"list, same name": {`{"a":[{"name":"x"},{"name":"x"}]}`, `{"a":[{"name":"x"}]}`, `.a[1].name "x" `},
		"escape":          {`{}`, `{"a\u001b[2J":[{"name":"\u0007"}]}`, `["a\x1b[2J"]  [{"name":"\u0007"}]`},
		"new element":     {`{"a":[{"type":"x"}]}`, `{"a":[{"type":"w"},{"type":"x"}]}`, `.a[w].type  "w"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var before, after map[string]any
			if json.Unmarshal([]byte(test.before), &before) != nil ||
				json.Unmarshal([]byte(test.after), &after) != nil {
				t.Fatal("the test is no JSON")
			}
			var got []string
			for _, c := range differences(before, after, false) {
				got = append(got, c.Path+" "+string(c.Before)+" "+string(c.After))
			}
			if all := strings.Join(got, ";"); all != test.want {
				t.Errorf("%q, want %q", all, test.want)
			}
		})
	}
}

// A value of a Secret is hidden in the history of the labels to which somebody has copied it.
func TestAttackHistoryOfCopies(t *testing.T) {
	t.Parallel()
	const value, encoded = "Correct-Horse", "Q29ycmVjdC1Ib3JzZQ=="
	object := func(labels string) (o map[string]any) {
		text := `{"metadata":{"name":"a","labels":` + labels + `},"data":{"x":"` + encoded + `"}}`
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	before := object(`{"a":"` + value + `"}`)
	after := object(`{"b":"is.` + value + `","` + value + `":"c","d":"` + encoded[:18] + `"}`)
	changes := differences(before, after, true)
	if len(changes) != 4 {
		t.Errorf("got %d changes, want 4", len(changes))
	}
	rotated := object(`{"a":"` + value + `"}`)
	rotated["data"] = map[string]any{"x": "bmV3"}
	hideSecret(rotated, after)
	hideSecret(after, before)
	shown, err := json.Marshal([]any{changes, after, rotated})
	if err != nil {
		t.Fatal(err)
	}
	for _, hidden := range []string{value, encoded[:18]} {
		if strings.Contains(string(shown), hidden) {
			t.Errorf("%q is in %s", hidden, shown)
		}
	}
	if !strings.Contains(string(shown), `"x":"(13 bytes, not shown)"`) {
		t.Errorf("the size of the data is missing in %s", shown)
	}
}
