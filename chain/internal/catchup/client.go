package catchup

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
)

// AggregatedDiscovery is the media type of the aggregated discovery document.
const AggregatedDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// Client makes requests by which a server looks at its own responses.
type Client struct {
	http *http.Client
	host string
}

// NewClient returns a client with the configuration by which the server calls itself.
func NewClient(config *rest.Config) (*Client, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &Client{client, config.Host}, nil
}

// Get makes a GET request. The status code is 0 if it fails.
func (c *Client) Get(ctx context.Context, path, accept string) (code int, body []byte) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.host+path, nil)
	if err != nil {
		return 0, nil
	}
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return 0, nil
	}
	defer answer.Body.Close()
	if body, err = io.ReadAll(answer.Body); err != nil {
		return 0, nil
	}
	return answer.StatusCode, body
}

// GetJSON makes a GET request, and reports whether it succeeded.
func (c *Client) GetJSON(ctx context.Context, path, accept string, into any) bool {
	code, body := c.Get(ctx, path, accept)
	return code == http.StatusOK && json.Unmarshal(body, into) == nil
}
