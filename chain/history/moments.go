package history

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/internal/rawclient"
)

// MomentsPath is the URL of the moments of the whole control plane. RBAC permits it to nobody but
// members of system:masters, unless a role names the URL.
const MomentsPath = "/kinproc/v1/moments"

// MaxMoments is how many moments there are at most. If there would be more, they are longer.
const MaxMoments = 600

// Moment is a time in which something was written, of ten milliseconds or more. Etcd still keeps
// its revision, so lists with this resourceVersion, and with the resourceVersionMatch Exact, return
// what there was at its end.
type Moment struct {
	// Revision is the newest one of the moment, and Time is when it was written.
	Revision int64     `json:"revision"`
	Time     time.Time `json:"time"`
	// Writes is the number of revisions whose writers are known.
	Writes int `json:"writes"`
	// Writers are some of the writers. Only their users and user agents are set.
	Writers []Writer `json:"writers"`
}

// Moments returns the moments of which the server knows, the oldest first.
func Moments(ctx context.Context, config *rest.Config) ([]Moment, error) {
	body, err := rawclient.Open(ctx, config, http.MethodGet, MomentsPath, nil, nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var moments []Moment
	if err := json.NewDecoder(body).Decode(&moments); err != nil {
		return nil, fmt.Errorf("read the moments: %w", err)
	}
	return moments, nil
}
