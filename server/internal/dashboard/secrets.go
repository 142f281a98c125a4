package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// lastApplied is the annotation in which kubectl apply keeps a whole object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// redactJSON returns a JSON document without the data of Secrets and without tokens. Secrets says
// that all its objects are Secrets or their metadata, whatever they say.
func redactJSON(document []byte, secrets bool) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber() // keeps large integers as they are
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	redact(value, secrets)
	return json.Marshal(value)
}

// redactYAML is like redactJSON, but returns YAML.
func redactYAML(document []byte, secrets bool) (string, error) {
	redacted, err := redactJSON(document, secrets)
	if err != nil {
		return "", err
	}
	text, err := yaml.JSONToYAML(redacted)
	return string(text), err
}

// redact replaces the data of Secrets and tokens in a decoded JSON value by their sizes, and
// removes managed fields. It looks at everything in the value, since one object may contain
// another.
func redact(value any, secrets bool) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			redact(element, secrets)
		}
	case map[string]any:
		kind, _ := value["kind"].(string)
		// the items of a SecretList do not say what they are
		secrets = secrets || kind == "SecretList"
		if kind == "Secret" || secrets {
			redactSecret(value)
		}
		if kind == "TokenRequest" || kind == "TokenReview" {
			redactTokens(value)
		}
		if metadata, ok := value["metadata"].(map[string]any); ok {
			delete(metadata, "managedFields") // as kubectl does
		}
		redactLastApplied(value)
		for _, element := range value {
			redact(element, secrets)
		}
	}
}

func redactSecret(secret map[string]any) {
	for _, field := range []string{"data", "stringData"} {
		if data, ok := secret[field].(map[string]any); ok {
			for key, value := range data {
				data[key] = size(value)
			}
		} else if secret[field] != nil {
			secret[field] = size(secret[field])
		}
	}
	metadata, ok := secret["metadata"].(map[string]any)
	if !ok {
		return
	}
	annotations, _ := metadata["annotations"].(map[string]any)
	for key, value := range annotations {
		// Tools keep copies of whole objects in annotations.
		if !strings.HasPrefix(key, "kubernetes.io/") {
			annotations[key] = size(value)
		}
	}
}

func redactTokens(review map[string]any) {
	for _, field := range []string{"spec", "status"} {
		if part, ok := review[field].(map[string]any); ok && part["token"] != nil {
			part["token"] = size(part["token"])
		}
	}
}

// redactLastApplied redacts the copy of an object in an annotation. The metadata of a Secret have
// it too, and do not say what they belong to.
func redactLastApplied(annotations map[string]any) {
	kept, ok := annotations[lastApplied].(string)
	if !ok {
		return
	}
	var object map[string]any
	if json.Unmarshal([]byte(kept), &object) != nil || object["kind"] == "Secret" {
		annotations[lastApplied] = size(kept)
		return
	}
	redacted, err := redactJSON([]byte(kept), false)
	if err != nil {
		redacted = []byte(size(kept))
	}
	annotations[lastApplied] = string(redacted)
}

// notShown matches what size returns.
var notShown = regexp.MustCompile(`\((\d+ bytes, )?not shown\)`)

// size describes a value that is not shown. A history has such descriptions already.
func size(value any) string {
	text, ok := value.(string)
	if !ok {
		return "(not shown)"
	}
	if notShown.FindString(text) == text {
		return text
	}
	return fmt.Sprintf("(%d bytes, not shown)", len(text))
}
