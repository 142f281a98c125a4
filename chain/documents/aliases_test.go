package documents

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
	goyaml "sigs.k8s.io/yaml/goyaml.v2"
)

// limit is the API servers' limit for request bodies.
const limit = MaxSize

// laughs returns a document of a few lines, each of which has ten aliases to the previous one.
func laughs(lines int) string {
	var b strings.Builder
	b.WriteString("a0: &a0 ha\n")
	for i := 1; i <= lines; i++ {
		fmt.Fprintf(&b, "a%d: &a%[1]d [%s]\n",
			i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	return b.String()
}

// chained returns a document in which each alias refers to a node that nests the previous one.
func chained(lines, nested int) string {
	var b strings.Builder
	b.WriteString("a0: &a0 x\n")
	for i := 1; i <= lines; i++ {
		fmt.Fprintf(&b, "a%d: &a%[1]d %s*a%d%s\n", i, strings.Repeat("[", nested), i-1,
			strings.Repeat("]", nested))
	}
	return b.String()
}

func TestCheck(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 100<<10)
	for _, test := range []struct {
		name, document, want string
	}{
		{"empty", "", ""},
		{"no aliases", "a: &a " + text + "\nb: 2 * 3\n", ""},
		{"large without aliases", "a: &a\n" + strings.Repeat("- "+text+"\n", 30) + "b: '*'\n", ""},
		{
			"too large without aliases", strings.Repeat("- "+text+"\n", 40),
			"larger than 3145728 bytes",
		},
		{"a few", "a: &a {x: 1}\nb: *a\nc: {<<: *a, y: 2}\n", ""},
		{"a text twenty times", "a: &a " + text + "\nb: [" + strings.Repeat("*a, ", 20) + "*a]\n", ""},
		{
			"a text forty times", "a: &a " + text + "\nb: [" + strings.Repeat("*a, ", 40) + "*a]\n",
			"expand to more than 3145728 bytes",
		},
		{
			"a text in merged maps",
			"a: &a {x: " + text + "}\nb: [" + strings.Repeat("{<<: *a}, ", 40) + "]\n",
			"expand to more than 3145728 bytes",
		},
		{
			"a text as keys", "a: &a " + text + "\nb: [" + strings.Repeat("{*a : 1}, ", 40) + "]\n",
			"expand to more than 3145728 bytes",
		},
		{"thousand laughs", laughs(3), ""},
		{"billion laughs", laughs(9), "expand to more than 3145728 bytes"},
		{"deep", chained(9, 1000), ""},
		{"too deep", chained(11, 1000), "nested more than 10000 levels deep"},
		{"cycle", "a: &a [*a]\n", "anchor 'a' value contains itself"},
		{"unknown anchor", "a: &a x\nb: *c\n", "unknown anchor 'c'"},
		{"no YAML", "a: &a [\n*a", "yaml: line"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			err := Check([]byte(test.document), limit)
			if test.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if _, err := yaml.YAMLToJSON([]byte(test.document)); err != nil {
					t.Errorf("accepted, but not decoded: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			var tooLarge *TooLargeError
			if want := strings.Contains(test.want, "than 3145728"); errors.As(err, &tooLarge) != want {
				t.Errorf("got an error of type %T", err)
			}
		})
	}
}

// TestCheckIsLinear would take hours if the time to check a document were quadratic in its size.
func TestCheckIsLinear(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]string{
		"comments":          "# c\n",
		"indented comments": "  # c\n",
		"comments of items": "- a # c\n",
		"comments between":  "- a\n# c\n",
		"foot comments":     "- a\n\n# c\n\n",
		"spaces":            "- a                    \n",
		"empty lines":       "\n",
		"items":             "- a\n",
		"empty items":       "-\n",
		"aliases":           "- *a\n",
		"anchors":           "- &a a\n",
		"merges":            "- <<: *a\n",
		"pairs":             "- a: b\n",
		"complex keys":      "- ? a\n",
		"texts":             "- |\n  a\n",
		"quotes":            "- \"a\n\n  b\"\n",
		"tags":              "- !!str a\n",
		"nested":            "- [[{a: [b, {c: d}]}]]\n",
	} {
		t.Run(name, func(t *testing.T) {
			document := "- &a {x: y}\n- *a\n" + strings.Repeat(part, (1<<20)/len(part))
			start := time.Now()
			_ = Check([]byte(document), limit)
			if took := time.Since(start); took > time.Minute {
				t.Errorf("%d bytes took %s", len(document), took)
			}
		})
	}
}

// FuzzCheck checks and decodes documents. The decoder is another version of the same parser.
func FuzzCheck(f *testing.F) {
	for _, document := range []string{
		laughs(4), chained(3, 5), "a: &a {x: 1}\nb: {<<: *a, c: *a}\n", "? &a [1]\n: *a\n",
		"- &a !!str 1\n- *a\n--- *a\n", "# &a\na: &a # *a\n  b\nc:\n# c\n- *a # d\n\n# e\n",
		"a: &a |\n  text\nb: \"\\x41 *a\"\nc: '&'\nd: *a", "&a {*a : 1}", "{a: &a 1, *a : *a}",
	} {
		f.Add([]byte(document))
	}
	const limit = 1 << 12
	f.Fuzz(func(t *testing.T, document []byte) {
		if len(document) > 1<<10 {
			return
		}
		err := Check(document, limit)
		var tooLarge *TooLargeError
		if errors.As(err, &tooLarge) {
			return
		}
		json, decodeErr := yaml.YAMLToJSON(document)
		// Only the first document is decoded, but what follows it is parsed in part.
		if err != nil && decodeErr == nil && parses(document) {
			t.Errorf("refused, but decoded: %v", err)
		}
		// A byte of text becomes up to six bytes of JSON.
		if err == nil && len(json) > 6*limit {
			t.Errorf("accepted, but its JSON has %d bytes", len(json))
		}
	})
}

func parses(documents []byte) bool {
	decoder := goyaml.NewDecoder(bytes.NewReader(documents))
	for {
		var document any
		if err := decoder.Decode(&document); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}
