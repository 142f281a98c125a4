package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/internal/rawclient"
)

// Add adds a fault to a control plane, and returns it with its ID. An error of the API says what is
// wrong with the fault; any other server than kinproc answers 404.
func Add(ctx context.Context, config *rest.Config, s Spec) (added Fault, err error) {
	body, err := json.Marshal(s)
	if err != nil {
		return added, err
	}
	return added, do(ctx, config, http.MethodPost, "", bytes.NewReader(body), &added)
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
	ctx context.Context, config *rest.Config, method, path string, body io.Reader, into any,
) error {
	answer, err := rawclient.Open(ctx, config, method, Path+path, nil, body)
	if err != nil {
		return err
	}
	defer answer.Close()
	if err := json.NewDecoder(answer).Decode(into); err != nil {
		return fmt.Errorf("read the answer to %s %s: %w", method, Path+path, err)
	}
	return nil
}
