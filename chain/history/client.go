package history

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/internal/rawclient"
)

// PathOf returns the path of an object in the API, or that of a list if the name is empty. The
// namespace of cluster-scoped objects is empty.
func PathOf(resource schema.GroupVersionResource, namespace, name string) string {
	parts := []string{"", "apis", resource.Group, resource.Version}
	if resource.Group == "" {
		parts = []string{"", "api", resource.Version}
	}
	if namespace != "" {
		parts = append(parts, "namespaces", namespace)
	}
	parts = append(parts, resource.Resource)
	if name != "" {
		parts = append(parts, name)
	}
	return strings.Join(parts, "/")
}

// Get returns the history of an object, or of the objects in a list, by its path in the API. If the
// server ends a search early, Get continues it.
func Get(ctx context.Context, config *rest.Config, path string, o Options) (*History, error) {
	h, err := get(ctx, config, path, o)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(o.Limit, DefaultLimit)
	for h.Before != 0 && len(h.Versions) < limit {
		o.Before, o.Limit = h.Before, limit-len(h.Versions)
		older, err := get(ctx, config, path, o)
		if err != nil {
			return nil, err
		}
		older.Revision, older.Versions = h.Revision, append(older.Versions, h.Versions...)
		h = older
	}
	return h, nil
}

func get(ctx context.Context, config *rest.Config, path string, o Options) (*History, error) {
	body, err := open(ctx, config, path, o.Query())
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var h History
	if err := json.NewDecoder(body).Decode(&h); err != nil {
		return nil, fmt.Errorf("read the history of %s: %w", path, err)
	}
	return &h, nil
}

// Follow calls report for each version that [Get] would return, and then for each new one, until
// ctx ends, the server stops, or the connection is lost, which looks the same. Then it returns nil.
func Follow(
	ctx context.Context, config *rest.Config, path string, o Options, report func(Version),
) error {
	query := o.Query()
	query.Set("watch", "true")
	body, err := open(ctx, config, path, query)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer body.Close()
	for decoder := json.NewDecoder(body); ; {
		var v Version
		switch err := decoder.Decode(&v); {
		case ctx.Err() != nil, err != nil && utilnet.IsProbableEOF(err):
			return nil
		case err != nil:
			return fmt.Errorf("follow the history of %s: %w", path, err)
		}
		report(v)
	}
}

func open(
	ctx context.Context, config *rest.Config, path string, query url.Values,
) (io.ReadCloser, error) {
	body, err := rawclient.Open(ctx, config, http.MethodGet, Path+path, query, nil)
	if err != nil && !errors.As(err, new(apierrors.APIStatus)) {
		err = fmt.Errorf("read the history of %s: %w", path, err)
	}
	return body, err
}
