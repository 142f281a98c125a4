// Package documents decodes the YAML that a user or a repository wrote: objects, tables, settings,
// kubeconfigs. All of it passes through here, and a test in the module's root lists who decodes
// YAML in another way.
//
// An alias costs its writer three bytes, but the decoder as much as the node that it refers to.
// Aliases to nodes that hold aliases multiply: a hundred kilobytes become gigabytes. The decoder of
// sigs.k8s.io/yaml counts nodes, but not the bytes in them. So a document is checked before it is
// decoded: it has at most 3 MiB, and at most as much when its aliases are expanded, as the body of
// a request. JSON is YAML too.
//
// Values are shorter than what decoding them takes: while a document of 3 MiB is decoded, it can
// take a few hundred megabytes. Whoever decodes for many users decodes for one at a time.
//
// Its names are exported for the packages of this module only, and may change.
package documents

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"

	"go.yaml.in/yaml/v3"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

const (
	// MaxSize is the maximum size of a document in bytes, also with its aliases expanded. It is the
	// API servers' limit for bodies.
	MaxSize = 3 << 20
	// MaxFile is the maximum size of a file of documents in bytes. All CRDs of a real project have
	// less than a tenth of that.
	MaxFile = 64 << 20
	// maxMessage limits the messages of the libraries, which repeat what they refuse.
	maxMessage = 1000
)

// Decode decodes the first of the documents into a value. It ignores fields that the value does not
// have. In a map, integers become int64. An empty document leaves the value as it is.
func Decode(document []byte, into any) error {
	return decode(document, into, yamlutil.Unmarshal)
}

// DecodeStrict is like [Decode], and refuses unknown fields and those that occur twice.
func DecodeStrict(document []byte, into any) error {
	return decode(document, into, yamlutil.UnmarshalStrict)
}

// Read is like [Decode] of all that a reader returns.
func Read(r io.Reader, into any) error {
	document, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err != nil {
		return err
	}
	return Decode(document, into)
}

func decode(document []byte, into any, unmarshal func([]byte, any) error) error {
	if err := Check(document, MaxSize); err != nil {
		return err
	}
	return short(unmarshal(document, into))
}

// ToJSON returns a document as JSON. It refuses fields that occur twice.
func ToJSON(document []byte) ([]byte, error) {
	if err := Check(document, MaxSize); err != nil {
		return nil, err
	}
	data, err := sigsyaml.YAMLToJSONStrict(document)
	return data, short(err)
}

// Nodes parses all documents of a file, for whoever needs their lines. The documents together have
// at most [MaxSize]. The result has none for a file of nothing but comments.
func Nodes(file []byte) ([]*yaml.Node, error) {
	if len(file) > MaxSize {
		return nil, &TooLargeError{len(file), MaxSize}
	}
	var all []*yaml.Node
	for decoder := yaml.NewDecoder(bytes.NewReader(file)); ; {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err == nil {
			err = check(&document, len(file), MaxSize)
		}
		if err != nil {
			return nil, short(err)
		}
		all = append(all, &document)
	}
}

// Split returns the documents of a file one after the other, without decoding them. An error is the
// last thing that it returns.
func Split(file []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if len(file) > MaxFile {
			yield(nil, fmt.Errorf("the file has %d bytes, more than %d; split it", len(file), MaxFile))
			return
		}
		reader := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(file)))
		for {
			document, err := reader.Read()
			if errors.Is(err, io.EOF) || !yield(document, short(err)) || err != nil {
				return
			}
		}
	}
}

// short returns an error with as much of its message as people read.
func short(err error) error {
	if err == nil || len(err.Error()) <= maxMessage {
		return err
	}
	return longError{err}
}

type longError struct{ error }

func (e longError) Error() string { return e.error.Error()[:maxMessage] + "…" }
func (e longError) Unwrap() error { return e.error }
