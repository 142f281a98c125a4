package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Add adds a fault to a control plane, and returns it with its ID. An error of the API says what is
// wrong with the fault; any other server than kinproc answers 404.
func Add(ctx context.Context, config *rest.Config, f Fault) (added Fault, err error) {
	body, err := json.Marshal(f)
	if err != nil {
		return added, err
	}
	return added, do(ctx, config, http.MethodPost, "", body, &added)
}

// Get returns a fault with its hits.
func Get(ctx context.Context, config *rest.Config, id string) (f Fault, err error) {
	return f, do(ctx, config, http.MethodGet, "/"+id, nil, &f)
}

// All returns all faults of a control plane in the order in which they were added.
func All(ctx context.Context, config *rest.Config) ([]Fault, error) {
	var list List
	err := do(ctx, config, http.MethodGet, "", nil, &list)
	return list.Items, err
}

// Remove removes a fault, releases what it holds, and returns it with its last hits.
func Remove(ctx context.Context, config *rest.Config, id string) (f Fault, err error) {
	return f, do(ctx, config, http.MethodDelete, "/"+id, nil, &f)
}

// RemoveAll removes all faults of a control plane.
func RemoveAll(ctx context.Context, config *rest.Config) error {
	return do(ctx, config, http.MethodDelete, "", nil, &metav1.Status{})
}

// do sends a request for a path below [Path] and decodes the answer.
func do(
	ctx context.Context, config *rest.Config, method, path string, body []byte, into any,
) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	base.Path = Path + path
	r, err := http.NewRequestWithContext(ctx, method, base.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("read the answer to %s %s: %w", method, base.Path, err)
	}
	if response.StatusCode == http.StatusOK {
		return json.Unmarshal(answer, into)
	}
	var status metav1.Status
	if json.Unmarshal(answer, &status) == nil && status.Status == metav1.StatusFailure {
		return &apierrors.StatusError{ErrStatus: status}
	}
	return errors.New("the server is not kinproc, or an older one: it answered " + response.Status +
		" to " + method + " " + base.Path)
}
