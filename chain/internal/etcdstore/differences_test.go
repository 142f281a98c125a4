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
