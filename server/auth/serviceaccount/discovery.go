package serviceaccount

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Paths of the documents with which others can verify tokens (OpenID Connect Discovery 1.0).
const (
	ConfigurationPath = "/.well-known/openid-configuration"
	KeysPath          = "/openid/v1/jwks"
)

// cacheControl lets clients keep the documents for an hour: keys change rarely, and with an overlap.
const cacheControl = "public, max-age=3600"

// Handlers serve the discovery documents, by path. They need no authentication of their own; system:service-account-issuer-discovery says
// who may read them.
func (t *Tokens) Handlers() (map[string]http.Handler, error) {
	algorithms := []string{}
	for _, v := range t.verifiers {
		if !slices.Contains(algorithms, v.method.Alg()) {
			algorithms = append(algorithms, v.method.Alg())
		}
	}
	slices.Sort(algorithms)
	keysURI := t.options.KeysURI
	if keysURI == "" {
		keysURI = strings.TrimSuffix(t.options.Issuers[0], "/") + KeysPath
	}
	configuration, err := json.Marshal(struct {
		Issuer        string   `json:"issuer"`
		KeysURI       string   `json:"jwks_uri"`
		ResponseTypes []string `json:"response_types_supported"`
		SubjectTypes  []string `json:"subject_types_supported"`
		Algorithms    []string `json:"id_token_signing_alg_values_supported"`
	}{t.options.Issuers[0], keysURI, []string{"id_token"}, []string{"public"}, algorithms})
	if err != nil {
		return nil, fmt.Errorf("encode the discovery document: %w", err)
	}
	keys, err := keySet(t.verifiers)
	if err != nil {
		return nil, fmt.Errorf("encode the key set: %w", err)
	}
	return map[string]http.Handler{
		ConfigurationPath: document("application/json", configuration),
		KeysPath:          document("application/jwk-set+json", keys),
	}, nil
}

func document(contentType string, body []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "this document can only be read", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Cache-Control", cacheControl)
		// An error means that the client is gone.
		_, _ = w.Write(body)
	})
}
