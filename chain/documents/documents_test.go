package documents

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

type table []struct {
	Command string `json:"command"`
	Exit    int    `json:"exit"`
}

// TestAttackAliases has a document of 300 kB that would take 4.5 GB, in each way to decode it.
func TestAttackAliases(t *testing.T) {
	t.Parallel()
	bomb := []byte("- command: &a \"" + strings.Repeat("A", 300_000) + "\"\n" +
		strings.Repeat("- {command: *a}\n", 15_000))
	for name, decode := range map[string]func() error{
		"Decode":       func() error { return Decode(bomb, &table{}) },
		"DecodeStrict": func() error { return DecodeStrict(bomb, &table{}) },
		"Read":         func() error { return Read(strings.NewReader(string(bomb)), &table{}) },
		"ToJSON":       func() error { _, err := ToJSON(bomb); return err },
		"Nodes":        func() error { _, err := Nodes(bomb); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var tooLarge *TooLargeError
			if err := decode(); !errors.As(err, &tooLarge) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestAttackLargeDocument has documents and files without aliases that are too large.
func TestAttackLargeDocument(t *testing.T) {
	t.Parallel()
	large := []byte(strings.Repeat("- {}\n", MaxSize/5+1))
	var tooLarge *TooLargeError
	for name, err := range map[string]error{
		"Decode": Decode(large, &table{}),
		"Read":   Read(strings.NewReader(string(large)), &table{}),
		"Nodes":  func() error { _, err := Nodes(large); return err }(),
	} {
		if !errors.As(err, &tooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	number := 0
	for _, err := range Split(make([]byte, MaxFile+1)) {
		if number++; err == nil || !strings.Contains(err.Error(), "the file has 67108865 bytes") {
			t.Errorf("Split: %v", err)
		}
	}
	if number != 1 {
		t.Errorf("Split returned %d times", number)
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	var list table
	if err := Decode([]byte("- {command: a, other: 1}\n- {command: &b b}\n- {command: *b}"),
		&list); err != nil || len(list) != 3 || list[2].Command != "b" {
		t.Errorf("%+v, %v", list, err)
	}
	var object map[string]any
	if err := Decode([]byte("a: 9007199254740993\nb: 1.5"), &object); err != nil ||
		!reflect.DeepEqual(object, map[string]any{"a": int64(9007199254740993), "b": 1.5}) {
		t.Errorf("%v, %v", object, err)
	}
	if err := Decode([]byte("# nothing\n---\n"), &object); err != nil || len(object) != 2 {
		t.Errorf("an empty document: %v, %v", object, err)
	}
	for _, document := range []string{"- {command: a, other: 1}", "- {exit: 1, exit: 2}"} {
		if err := DecodeStrict([]byte(document), &list); err == nil {
			t.Errorf("%s is accepted", document)
		}
	}
	if data, err := ToJSON([]byte("a: 18446744073709551615")); string(data) !=
		`{"a":18446744073709551615}` || err != nil {
		t.Errorf("%s, %v", data, err)
	}
	if _, err := ToJSON([]byte("a: 1\na: 2")); err == nil {
		t.Error("a field that occurs twice is accepted")
	}
}

func TestNodes(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"": "0 []", "# a\n": "0 []", "a: 1": "1 [1]", "a: 1\n---\nb: 2": "2 [1 3]",
	} {
		all, err := Nodes([]byte(file))
		var lines []int
		for _, n := range all {
			lines = append(lines, n.Content[0].Line)
		}
		if got := fmt.Sprint(len(all), lines); got != want || err != nil {
			t.Errorf("%q: %s, %v, want %s", file, got, err, want)
		}
	}
	for _, file := range []string{"a: [", "a: &a [*a]", "a: 1\n---\nb: ["} {
		if _, err := Nodes([]byte(file)); err == nil {
			t.Errorf("%q is accepted", file)
		}
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	var all []string
	for document, err := range Split([]byte("a: 1\n---\n# b\n--- # c\nd: 2\n--- e\n")) {
		all = append(all, fmt.Sprintf("%s %v", document, err))
	}
	want := []string{"a: 1\n <nil>", "# b\n <nil>", " invalid Yaml document separator: e"}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("got %q, want %q", all, want)
	}
}

// What the libraries say about a document can repeat all of it.
func TestMessagesAreShort(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100_000)
	for _, document := range []string{
		"- {" + long + ": 1}", "- {a: &a 1, b: *" + long + "}", "- {? {" + long + ": 1} : 1}",
		"- {" + strings.Repeat("a: 1, ", 10_000) + "}",
	} {
		err := DecodeStrict([]byte(document), &table{})
		if err == nil || len(err.Error()) > 2*maxMessage {
			t.Errorf("%.20s: %.2000v", document, err)
		}
	}
}

// FuzzDecode decodes documents in all ways. Nothing panics, what is decoded is bounded, and the
// lenient decoder accepts what the strict one does.
func FuzzDecode(f *testing.F) {
	for _, document := range []string{
		laughs(4), chained(3, 5), "- {command: a}\n---\n- {exit: 1}", `[{"command": "a"}]`, "- - a",
		"a: &a {x: 1}\nb: {<<: *a}", "--- # a\n--- b", "? {a: b}\n: c", "a: 0o17\nb: 1e400", "&a [*a]",
		"!!binary aGk=", "%YAML 1.1\n---\na: !!float 1",
	} {
		f.Add([]byte(document))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		if len(file) > 1<<10 {
			return
		}
		_, _ = Nodes(file)
		size := 0
		for document, err := range Split(file) {
			if size += len(document); err != nil {
				break
			}
			var strict, lenient, typed any = nil, nil, &table{}
			strictErr, lenientErr := DecodeStrict(document, &strict), Decode(document, &lenient)
			if strictErr == nil && (lenientErr != nil || !reflect.DeepEqual(strict, lenient)) {
				t.Errorf("%q is strictly %v, and leniently %v, %v", document, strict, lenient, lenientErr)
			}
			_ = DecodeStrict(document, typed)
			if data, err := ToJSON(document); err == nil && (!json.Valid(data) || len(data) > 6*MaxSize) {
				t.Errorf("%q becomes %d bytes of JSON: %.100s", document, len(data), data)
			}
		}
		if size > len(file)+1 { // the last line gets an end
			t.Errorf("%d bytes are split into %d", len(file), size)
		}
	})
}
