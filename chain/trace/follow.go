package trace

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/internal/rawclient"
)

// FollowPath is the non-resource URL at which a server streams the traces of all requests, as
// [Request] values in JSON, one in a line. The user must be allowed to get it.
const FollowPath = "/kinproc/v1/trace/requests"

// Request is a request that has passed through the chain. A watch is reported when it begins; its
// Bytes and Took are those of its beginning.
type Request struct {
	Method string `json:"method"`
	Path   string `json:"path"` // with the query
	// Verb is that of authorization, such as "list", and Resource is such as
	// "deployments.apps/scale". Both are empty if the request has not come so far, and Resource for
	// other URLs.
	Verb     string `json:"verb,omitempty"`
	Resource string `json:"resource,omitempty"`
	// User is empty if the request was not authenticated.
	User string `json:"user,omitempty"`
	// UserAgent is what the client says it is, of which at most the first 256 bytes are kept.
	UserAgent string `json:"userAgent,omitempty"`

	Code     int           `json:"code"`  // of the response
	Bytes    int64         `json:"bytes"` // of the response's body
	Received time.Time     `json:"received"`
	Took     time.Duration `json:"took"` // in nanoseconds
	Steps    []Step        `json:"steps"`
	// Dropped is the number of requests since the last one that are not reported, because the
	// client read too slowly.
	Dropped int `json:"dropped,omitempty"`
}

// Size returns about how much memory the request takes, in bytes, for those who keep some.
func (r *Request) Size() int {
	const request, step = 256, 160
	n := request + len(r.Path) + len(r.UserAgent)
	for _, s := range r.Steps {
		n += step + len(s.Reason) + len(s.Patch) + len(s.Object)
	}
	return n
}

// FollowOptions selects requests, and what their traces show.
type FollowOptions struct {
	// Method, if not empty, selects the requests of a method.
	Method string
	// PathPrefix, if not empty, selects the requests whose path begins with it.
	PathPrefix string
	// User, if not empty, selects the requests of a user.
	User string
	// Objects adds the object to each step that changed it.
	Objects bool
}

// Query returns the options as the query of a request for [FollowPath].
func (o FollowOptions) Query() url.Values {
	query := url.Values{}
	for key, value := range map[string]string{
		"method": o.Method, "pathPrefix": o.PathPrefix, "user": o.User,
	} {
		if value != "" {
			query.Set(key, value)
		}
	}
	if o.Objects {
		query.Set("objects", "true")
	}
	return query
}

// ParseFollowOptions is the reverse of [FollowOptions.Query]. It returns an error for parameters
// that do not exist.
func ParseFollowOptions(query url.Values) (o FollowOptions, err error) {
	for key, values := range query {
		value := values[len(values)-1]
		switch key {
		case "method":
			o.Method = strings.ToUpper(value)
		case "pathPrefix":
			o.PathPrefix = value
		case "user":
			o.User = value
		case "objects":
			if o.Objects, err = strconv.ParseBool(value); err != nil {
				return o, fmt.Errorf("objects: %q is neither true nor false", value)
			}
		default:
			return o, fmt.Errorf("%q is not a parameter: use method, pathPrefix, user or objects", key)
		}
	}
	return o, nil
}

// Follow calls report for each request that passes through the server's chain, until ctx ends, the
// server stops, or the connection is lost, which looks the same. Then it returns nil. Report is
// called by one goroutine; while it runs, requests wait, and are dropped if they become too many.
func Follow(
	ctx context.Context, config *rest.Config, o FollowOptions, report func(Request),
) error {
	response, err := rawclient.Send(ctx, config, http.MethodGet, FollowPath, o.Query(), nil)
	if err != nil {
		return ended(ctx, fmt.Errorf("follow requests: %w", err))
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return fmt.Errorf("follow requests: the server answered %s to GET %s: %s", response.Status,
			FollowPath, message(body))
	}
	for decoder := json.NewDecoder(response.Body); ; {
		var request Request
		if err := decoder.Decode(&request); err != nil && utilnet.IsProbableEOF(err) {
			return nil
		} else if err != nil {
			return ended(ctx, fmt.Errorf("follow requests: %w", err))
		}
		report(request)
	}
}

// ended returns nil if ctx has ended, and err otherwise.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// message returns the message of a Status, or the body itself.
func message(body []byte) string {
	var status struct{ Message string }
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		return status.Message
	}
	return strings.TrimSpace(string(body))
}
