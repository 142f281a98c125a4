package standin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// errClaimed says why a stand-in for etcd serves one kube-apiserver only.
var errClaimed = errors.New("it is kinproc's stand-in for etcd, which holds no data, " +
	"and another kube-apiserver has used it: the objects of that kube-apiserver are gone when it " +
	"ends; start etcd again too, or use a real one")

const (
	// appearanceTimeout is how long to wait for something to listen at the address of etcd.
	appearanceTimeout = 10 * time.Second
	// answerTimeout is how long to wait for an answer.
	answerTimeout = 3 * time.Second
)

// claim is the use of a stand-in for etcd by one kube-apiserver.
type claim struct{ url string }

// claimEtcd claims the stand-in for etcd at the URL of etcd, or returns nil if there is a real
// etcd.
func claimEtcd(ctx context.Context, servers []string) (*claim, error) {
	if len(servers) != 1 || !strings.HasPrefix(servers[0], "http://") {
		return nil, nil
	}
	c := &claim{strings.TrimSuffix(servers[0], "/")}
	if !c.standIn(ctx) {
		return nil, nil
	}
	status, err := c.ask(ctx, http.MethodPost, claimPath, nil)
	if err == nil && status == http.StatusConflict {
		err = errClaimed
	}
	if err != nil {
		return nil, fmt.Errorf("--etcd-servers: %s: %w", c.url, err)
	}
	return c, nil
}

// release gives the stand-in back, after a start that failed.
func (c *claim) release(ctx context.Context) error {
	if c == nil {
		return nil
	}
	_, err := c.ask(context.WithoutCancel(ctx), http.MethodDelete, claimPath, nil)
	return err
}

// standIn reports whether a stand-in for etcd is at the URL. It waits until something listens
// there.
func (c *claim) standIn(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, appearanceTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var found etcdVersion
		_, err := c.ask(ctx, http.MethodGet, versionPath, &found)
		if err == nil || !refusedConnection(err) {
			return found.StandIn
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

// ask sends a request, and decodes the answer if there is one to decode.
func (c *claim) ask(ctx context.Context, method, path string, answer any) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, nil)
	if err != nil {
		return 0, err
	}
	transport := &http.Transport{DisableKeepAlives: true} // without the proxy of the environment
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if answer != nil {
		err = json.NewDecoder(response.Body).Decode(answer)
	}
	return response.StatusCode, err
}
