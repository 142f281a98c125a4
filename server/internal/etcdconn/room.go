package etcdconn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/kinproc/kinproc/embed"
)

// Room returns how full the database is. An external etcd with several members is as full as the
// fullest of them. Its quota is 0 if it does not tell.
func (c *Conn) Room(ctx context.Context) (embed.Room, error) {
	if c.Embedded != nil {
		return c.Embedded.Room(), nil
	}
	var room embed.Room
	var errs []error
	for _, endpoint := range c.Client.Endpoints() {
		status, err := c.Client.Status(ctx, endpoint)
		if err != nil {
			errs = append(errs, fmt.Errorf("ask etcd at %s for its status: %w", endpoint, err))
			continue
		}
		if status.DbSize > room.File {
			room = embed.Room{
				Quota: status.DbSizeQuota, Limit: status.DbSizeQuota,
				File: status.DbSize, Used: status.DbSizeInUse,
			}
		}
	}
	if room.File == 0 {
		return room, errors.Join(errs...)
	}
	return room, nil
}

// ServeRoom answers GET with [Conn.Room] as JSON.
func (c *Conn) ServeRoom(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "only GET is allowed", http.StatusMethodNotAllowed)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
	defer cancel()
	room, err := c.Room(ctx)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(room) // the client has gone
}
