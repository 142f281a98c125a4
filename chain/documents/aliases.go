package documents

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
)

const (
	// nodeSize is the size of a node besides its text. It is at least what the smallest value takes
	// in memory.
	nodeSize = 8
	// maxDepth is the maximum nesting depth of values. encoding/json has the same limit.
	maxDepth = 10000
)

// A TooLargeError reports that a document exceeds a limit, perhaps only when its aliases are
// expanded.
type TooLargeError struct {
	Size  int   // of the document, in bytes
	Limit int64 // in bytes
}

func (e *TooLargeError) Error() string {
	if int64(e.Size) > e.Limit {
		return fmt.Sprintf("a YAML document of %d bytes is larger than %d bytes; split it into several",
			e.Size, e.Limit)
	}
	return fmt.Sprintf("the aliases in a YAML document of %d bytes expand to more than %d bytes",
		e.Size, e.Limit)
}

// Check returns a [TooLargeError] if a document is larger than limit bytes, or is when its aliases
// are expanded, and another error if the document cannot be parsed or is nested too deeply. It
// parses only documents with aliases, and does not expand them.
func Check(document []byte, limit int64) error {
	if int64(len(document)) > limit {
		return &TooLargeError{len(document), limit}
	}
	if bytes.IndexByte(document, '&') < 0 || bytes.IndexByte(document, '*') < 0 {
		return nil
	}
	var root yaml.Node
	if err := yaml.Unmarshal(document, &root); err != nil {
		return short(err)
	}
	return check(&root, len(document), limit)
}

// check is Check of a parsed document of a size.
func check(root *yaml.Node, size int, limit int64) error {
	m := measurer{limit: limit, anchored: map[*yaml.Node]extent{}}
	e, err := m.measure(root)
	if err != nil || !m.aliases {
		return err
	}
	if e.size > limit {
		return &TooLargeError{size, limit}
	}
	return nil
}

// extent is the size of a node with its aliases expanded.
type extent struct {
	size  int64 // in bytes, at most one more than the limit
	depth int
}

type measurer struct {
	limit int64
	// anchored holds the extents of the nodes with anchors. An extent is zero while it is being
	// measured.
	anchored map[*yaml.Node]extent
	aliases  bool // whether the document has aliases
}

// measure returns the extent of a node. It does not recurse into aliases, because the node that an
// alias refers to comes before it in the document.
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
		return e, fmt.Errorf("yaml: line %d: values are nested more than %d levels deep",
			n.Line, maxDepth)
	}
	if n.Anchor != "" {
		m.anchored[n] = e
	}
	return e, nil
}
