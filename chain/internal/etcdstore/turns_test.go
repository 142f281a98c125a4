package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kinproc/kinproc/chain/history"
)

var ofConfigMaps = VersionsOf{
	Resource: schema.GroupResource{Resource: "configmaps"}, Namespace: "default", Limit: 10,
}

func as(ctx context.Context, name string) context.Context {
	return genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: name})
}

// A search that takes for ever holds up its user, and nobody else.
func TestAttackEndlessSearch(t *testing.T) {
	anywhere(t, func(t *testing.T, c configMaps) {
		c.put("default", "one", "a")
		hangs, release := make(chan struct{}, 10), make(chan struct{})
		endless := ofConfigMaps
		endless.Resource = schema.GroupResource{} // so that Allowed is asked during the search
		endless.Allowed = func(schema.GroupResource) (int64, bool) {
			hangs <- struct{}{}
			<-release
			return 0, true
		}
		ended := make(chan error)
		for range 5 {
			go func() {
				_, err := c.backend.Versions(as(t.Context(), "mallory"), endless)
				ended <- err
			}()
		}
		<-hangs
		h, err := c.backend.Versions(as(t.Context(), "jane"), ofConfigMaps)
		if err != nil || len(h.Versions) != 1 {
			t.Errorf("jane gets %+v, %v", h, err)
		}
		if len(hangs) != 0 {
			t.Error("two searches of one user run at the same time")
		}
		gone, leave := context.WithCancel(as(t.Context(), "mallory"))
		leave()
		if _, err := c.backend.Versions(gone, ofConfigMaps); !errors.Is(err, context.Canceled) {
			t.Errorf("a request whose client has gone: %v", err)
		}
		close(release)
		for range 5 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if n := len(c.backend.turns.users); n != 0 {
			t.Errorf("%d users are remembered", n)
		}
	})
}

// A search that takes too long says where it has stopped, and another one continues there. One that
// is followed goes on by itself.
func TestSearchIsContinued(t *testing.T) {
	anywhere(t, func(t *testing.T, c configMaps) {
		data, err := runtime.Encode(configMapCodec, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "rare", Labels: map[string]string{"app": "web"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		rare := c.commit(clientv3.OpPut("/registry/configmaps/default/rare", string(data)))
		for i := range 3*revisionsAtOnce + 1 {
			c.put("default", "busy", fmt.Sprint(i))
		}
		c.backend.patience = 1
		of := ofConfigMaps
		if of.Labels, err = labels.Parse("app=web"); err != nil {
			t.Fatal(err)
		}
		for searches := 1; ; searches++ {
			h, err := c.backend.Versions(t.Context(), of)
			if err != nil {
				t.Fatal(err)
			}
			if h.Before == 0 {
				if searches < 2 || len(h.Versions) != 1 || h.Versions[0].Revision != rare || h.More {
					t.Errorf("search %d: %+v", searches, h)
				}
				break
			}
			if len(h.Versions) != 0 || of.Before != 0 && h.Before >= of.Before {
				t.Fatalf("search %d before %d: %+v", searches, of.Before, h)
			}
			of.Before = h.Before
		}
		of.Before = 0
		enough := errors.New("enough")
		err = c.backend.FollowVersions(t.Context(), of, func(v history.Version) error {
			if v.Revision != rare {
				t.Errorf("followed: %+v", v)
			}
			return enough
		})
		if !errors.Is(err, enough) {
			t.Error(err)
		}
	})
}
