// Package aliases bounds what a YAML document becomes when its aliases are written out.
//
// An alias costs a client three bytes, and the decoder as much as what it stands for. Aliases of nodes that hold aliases
// multiply: a hundred kilobytes become gigabytes. The decoder of sigs.k8s.io/yaml counts nodes, but not the bytes in them.
package aliases

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
)

const (
	// nodeSize is what a node counts for besides its text: no less than the smallest value takes in memory.
	nodeSize = 8
	// maxDepth is how deep values may be nested. It is the limit of encoding/json.
	maxDepth = 10000
)

// A TooLargeError says that a document becomes larger than a limit.
type TooLargeError struct {
	Size  int   // of the document, in bytes
	Limit int64 // in bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the aliases in a YAML document of %d bytes stand for more than %d bytes", e.Size, e.Limit)
}

// Check returns a [TooLargeError] if a document becomes larger than limit bytes, and another error if it cannot be parsed or
// is nested too deep. It parses documents with aliases only, and does not write the aliases out.
func Check(document []byte, limit int64) error {
	if bytes.IndexByte(document, '&') < 0 || bytes.IndexByte(document, '*') < 0 {
		return nil
	}
	var root yaml.Node
	if err := yaml.Unmarshal(document, &root); err != nil {
		return err
	}
	m := measurer{limit: limit, anchored: map[*yaml.Node]extent{}}
	e, err := m.measure(&root)
	if err != nil || !m.aliases {
		return err
	}
	if e.size > limit {
		return &TooLargeError{Size: len(document), Limit: limit}
	}
	return nil
}

// extent is how large a node becomes.
type extent struct {
	size  int64 // in bytes, at most one more than the limit
	depth int
}

type measurer struct {
	limit int64
	// anchored are the nodes with anchors, whose extent is zero as long as it is being measured.
	anchored map[*yaml.Node]extent
	aliases  bool // whether there is one
}

// measure needs no recursion for an alias, since the node that it stands for comes first in the document.
func (m *measurer) measure(n *yaml.Node) (extent, error) {
	if n.Kind == yaml.AliasNode {
		m.aliases = true
		e := m.anchored[n.Alias]
		if e == (extent{}) {
			return e, fmt.Errorf("yaml: line %d: anchor '%s' value contains itself", n.Line, n.Value)
		}
		return e, nil
	}
	if n.Anchor != "" {
		m.anchored[n] = extent{}
	}
	e := extent{size: int64(len(n.Value)) + nodeSize}
	for _, child := range n.Content {
		c, err := m.measure(child)
		if err != nil {
			return c, err
		}
		e.size = min(e.size+c.size, m.limit+1)
		e.depth = max(e.depth, c.depth)
	}
	if e.depth++; e.depth > maxDepth {
		return e, fmt.Errorf("yaml: line %d: values are nested more than %d deep", n.Line, maxDepth)
	}
	if n.Anchor != "" {
		m.anchored[n] = e
	}
	return e, nil
}
