package etcdstore

import (
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// metadataOfJSON decodes the metadata of an object. encoding/json would read the whole object
// twice, which takes a millisecond for a large CRD. Usually the metadata is near the
// beginning, because stored keys are sorted.
func metadataOfJSON(data []byte, into *metav1.PartialObjectMetadata) error {
	missing := 3
	err := members(data, func(name string, value []byte) (bool, error) {
		var err error
		switch name {
		case "apiVersion":
			err = json.Unmarshal(value, &into.APIVersion)
		case "kind":
			err = json.Unmarshal(value, &into.Kind)
		case "metadata":
			err = members(value, func(name string, value []byte) (bool, error) {
				return true, setMember(&into.ObjectMeta, name, value)
			})
		default:
			return true, nil
		}
		missing--
		return missing > 0, err
	})
	if err == nil && missing > 0 {
		return errNoObject
	}
	return err
}

func setMember(into *metav1.ObjectMeta, name string, value []byte) error {
	switch name {
	case "name":
		return json.Unmarshal(value, &into.Name)
	case "namespace":
		return json.Unmarshal(value, &into.Namespace)
	case "uid":
		return json.Unmarshal(value, &into.UID)
	case "deletionTimestamp":
		return json.Unmarshal(value, &into.DeletionTimestamp)
	case "finalizers":
		return json.Unmarshal(value, &into.Finalizers)
	case "ownerReferences":
		return json.Unmarshal(value, &into.OwnerReferences)
	}
	return nil
}

var errNotJSON = errors.New("invalid JSON")

// members calls visit for the members of a JSON object until it returns false. It finds their ends
// without a check of what is in them, because etcd holds only what the server has encoded.
func members(data []byte, visit func(name string, value []byte) (bool, error)) error {
	at := space(data, 0)
	if at >= len(data) || data[at] != '{' {
		return fmt.Errorf("%w: not an object", errNotJSON)
	}
	for at = space(data, at+1); at < len(data) && data[at] == '"'; {
		end := valueEnd(data, at)
		name := data[at+1 : max(end-1, at+1)]
		at = space(data, end)
		if at >= len(data) || data[at] != ':' {
			return errNotJSON
		}
		at = space(data, at+1)
		end = valueEnd(data, at)
		if more, err := visit(string(name), data[at:end]); !more || err != nil {
			return err
		}
		if at = space(data, end); at < len(data) && data[at] == ',' {
			at = space(data, at+1)
		}
	}
	if at >= len(data) || data[at] != '}' {
		return errNotJSON
	}
	return nil
}

// space returns where the next token begins.
func space(data []byte, at int) int {
	for at < len(data) && (data[at] == ' ' || data[at] == '\n' || data[at] == '\t' ||
		data[at] == '\r') {
		at++
	}
	return at
}

// valueEnd returns where a value ends that begins at a position.
func valueEnd(data []byte, at int) int {
	depth := 0
	for ; at < len(data); at++ {
		switch data[at] {
		case '"':
			for at++; at < len(data) && data[at] != '"'; at++ {
				if data[at] == '\\' {
					at++
				}
			}
			if depth == 0 {
				return min(at+1, len(data))
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return at + 1
			} else if depth < 0 {
				return at
			}
		case ',', ':':
			if depth == 0 {
				return at
			}
		}
	}
	return len(data)
}
