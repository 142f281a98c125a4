package dashboard

import (
	"bytes"
	"encoding/json"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kinproc/kinproc/chain/secretvalues"
)

// decodeJSON decodes a JSON document, and keeps large integers as they are.
func decodeJSON(document []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

// redactJSON returns a JSON document without the data of Secrets, wherever in it the values stand,
// and without tokens. Secrets says that all its objects are Secrets or their metadata, whatever
// they say.
func redactJSON(document []byte, secrets bool) ([]byte, error) {
	return new(hiding).json(document, secrets)
}

// redactYAML is like redactJSON, but returns YAML.
func redactYAML(document []byte, secrets bool) (string, error) {
	return new(hiding).yaml(document, secrets)
}

// hiding is what is known of Secrets when an answer is made ready for the page.
type hiding struct {
	values secretvalues.Values
	names  bool // whether the answer has a name that the server has just made
}

// add adds the data of Secrets in a JSON document, if it is one.
func (h *hiding) add(document []byte, secrets bool) {
	if value, err := decodeJSON(document); err == nil {
		h.values.AddSecrets(value, secrets)
	}
}

func (h *hiding) json(document []byte, secrets bool) ([]byte, error) {
	value, err := decodeJSON(document)
	if err != nil {
		return nil, err
	}
	h.values.AddSecrets(value, secrets)
	redact(value, secrets)
	return json.Marshal(h.values.HideIn(value, h.names))
}

func (h *hiding) yaml(document []byte, secrets bool) (string, error) {
	redacted, err := h.json(document, secrets)
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
				data[key] = secretvalues.Size(value)
			}
		} else if secret[field] != nil {
			secret[field] = secretvalues.Size(secret[field])
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
			annotations[key] = secretvalues.Size(value)
		}
	}
}

func redactTokens(review map[string]any) {
	for _, field := range []string{"spec", "status"} {
		if part, ok := review[field].(map[string]any); ok && part["token"] != nil {
			part["token"] = secretvalues.Size(part["token"])
		}
	}
}

// redactLastApplied redacts the copy of an object in an annotation. The metadata of a Secret have
// it too, and do not say what they belong to.
func redactLastApplied(annotations map[string]any) {
	kept, ok := annotations[secretvalues.LastApplied].(string)
	if !ok {
		return
	}
	var object map[string]any
	if json.Unmarshal([]byte(kept), &object) != nil || object["kind"] == "Secret" {
		annotations[secretvalues.LastApplied] = secretvalues.Size(kept)
		return
	}
	redacted, err := redactJSON([]byte(kept), false)
	if err != nil {
		redacted = []byte(secretvalues.Size(kept))
	}
	annotations[secretvalues.LastApplied] = string(redacted)
}
