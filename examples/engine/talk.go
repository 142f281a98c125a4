package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// talk is the subresource rooms/talk, a websocket on which everyone in the room hears what the
// others say.
type talk struct {
	rooms rest.Getter

	mu      sync.Mutex
	present map[string]map[*guest]bool // by the room's namespace/name
}

// guest is a connection. The mutex is needed because a websocket supports one concurrent writer
// only.
type guest struct {
	mu sync.Mutex
	*websocket.Conn
}

func (g *guest) hear(message string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = g.WriteMessage(websocket.TextMessage, []byte(message)) // fails if the guest has left
}

var _ rest.Connecter = &talk{}

// New implements rest.Storage.
func (t *talk) New() runtime.Object { return &Room{} }

// Destroy implements rest.Storage.
func (t *talk) Destroy() {}

// ConnectMethods implements rest.Connecter. A websocket starts with a GET request.
func (t *talk) ConnectMethods() []string { return []string{http.MethodGet} }

// NewConnectOptions implements rest.Connecter. There are no options.
func (t *talk) NewConnectOptions() (runtime.Object, bool, string) { return nil, false, "" }

// Connect implements rest.Connecter. At this point the request is authenticated and authorized,
// whether or not it came through the aggregator.
func (t *talk) Connect(
	ctx context.Context, name string, _ runtime.Object, responder rest.Responder,
) (http.Handler, error) {
	obj, err := t.rooms.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	room := obj.(*Room)
	user, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("the request has no user")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		upgrader := websocket.Upgrader{
			Error: func(_ http.ResponseWriter, _ *http.Request, _ int, reason error) {
				responder.Error(apierrors.NewBadRequest(reason.Error()))
			},
		}
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return // the upgrader has already responded
		}
		defer conn.Close()
		t.attend(room, &guest{Conn: conn}, user.GetName())
	}), nil
}

// attend forwards what a guest says to everyone in the room until the guest leaves.
func (t *talk) attend(room *Room, g *guest, name string) {
	key := room.Namespace + "/" + room.Name
	if !t.enter(key, g, int(room.Spec.Seats)) {
		g.hear("the room is full")
		return
	}
	defer t.leave(key, g)
	g.hear(fmt.Sprintf("welcome, %s; we talk about %s", name, room.Spec.Topic))
	for {
		_, text, err := g.ReadMessage()
		if err != nil {
			return // the guest left
		}
		for _, other := range t.guests(key) {
			other.hear(fmt.Sprintf("%s: %s", name, text))
		}
	}
}

func (t *talk) enter(room string, g *guest, seats int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.present[room]) >= seats {
		return false
	}
	if t.present[room] == nil {
		t.present[room] = map[*guest]bool{}
	}
	t.present[room][g] = true
	return true
}

func (t *talk) leave(room string, g *guest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.present[room], g)
}

func (t *talk) guests(room string) []*guest {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*guest
	for g := range t.present[room] {
		all = append(all, g)
	}
	return all
}
