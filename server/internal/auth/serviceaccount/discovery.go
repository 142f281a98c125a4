package serviceaccount

import (
	"encoding/json"
	"fmt"
	"slices"

	restful "github.com/emicklei/go-restful/v3"
)

// Paths of the documents that other programs need to verify tokens (OpenID Connect Discovery 1.0).
const (
	ConfigurationPath = "/.well-known/openid-configuration"
	KeysPath          = "/openid/v1/jwks"
)

// cacheControl lets clients cache the documents for an hour: keys change rarely, and old and new
// keys overlap.
const cacheControl = "public, max-age=3600"

// WebServices returns the web services of the discovery documents. Unless [Options].KeysURI is set,
// the keys are located at address (HOST:PORT), the server's address. The services do not
// authenticate requests; the role system:service-account-issuer-discovery grants access to them.
func (t *Tokens) WebServices(address string) ([]*restful.WebService, error) {
	algorithms := []string{}
	for _, v := range t.verifiers {
		if !slices.Contains(algorithms, v.method.Alg()) {
			algorithms = append(algorithms, v.method.Alg())
		}
	}
	slices.Sort(algorithms)
	keysURI := t.options.KeysURI
	if keysURI == "" {
		keysURI = "https://" + address + KeysPath
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
	return []*restful.WebService{
		document(ConfigurationPath, "application/json", configuration,
			"getServiceAccountIssuerOpenIDConfiguration", "get the issuer of service account tokens and "+
				"the location of its keys (OpenID Connect Discovery)"),
		document(KeysPath, "application/jwk-set+json", keys, "getServiceAccountIssuerOpenIDKeyset",
			"get the public keys that verify service account tokens (RFC 7517)"),
	}, nil
}

func document(path, contentType string, body []byte, operation, doc string) *restful.WebService {
	service := new(restful.WebService).Path(path).Produces(contentType)
	return service.Route(service.GET("").Operation(operation).Doc(doc).Returns(200, "OK", "").
		Writes("").
		To(func(_ *restful.Request, w *restful.Response) {
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Cache-Control", cacheControl)
			// Writing fails only if the client is gone.
			_, _ = w.Write(body)
		}))
}
