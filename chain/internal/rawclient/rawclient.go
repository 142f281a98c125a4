// Package rawclient sends the requests of kinproc's own protocols, which are about no resource.
package rawclient

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Send sends a request to the path of a server, and returns the response, whatever its status is.
func Send(
	ctx context.Context, config *rest.Config, method, path string, query url.Values, body io.Reader,
) (*http.Response, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	base.Path, base.RawQuery = path, query.Encode()
	r, err := http.NewRequestWithContext(ctx, method, base.String(), body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", cmp.Or(config.UserAgent, rest.DefaultKubernetesUserAgent()))
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return client.Do(r)
}

// maxError limits what is read of an error.
const maxError = 64 << 10

// Open is like [Send], but returns only the body of a response with status 200, and an error
// otherwise: that of the API, if the response has one.
func Open(
	ctx context.Context, config *rest.Config, method, path string, query url.Values, body io.Reader,
) (io.ReadCloser, error) {
	response, err := Send(ctx, config, method, path, query, body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxError))
	var status metav1.Status
	if json.Unmarshal(text, &status) == nil && status.Status == metav1.StatusFailure {
		return nil, &apierrors.StatusError{ErrStatus: status}
	}
	return nil, fmt.Errorf("the server answered %s to %s %s: it is not kinproc, or an earlier version",
		response.Status, method, path)
}
