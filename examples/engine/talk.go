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

// talk is the subresource rooms/talk: a websocket on which everybody in the room hears what the others say.
type talk struct {
	rooms rest.Getter

	mu      sync.Mutex
	present map[string]map[*guest]bool // by the room's namespace/name
}

// guest is a connection; a websocket takes one writer at a time.
type guest struct {
	mu sync.Mutex
	*websocket.Conn
}

func (g *guest) hear(message string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = g.WriteMessage(websocket.TextMessage, []byte(message)) // who has gone does not read any more either
}

var _ rest.Connecter = &talk{}

// New implements rest.Storage.
func (t *talk) New() runtime.Object { return &Room{} }

// Destroy implements rest.Storage.
func (t *talk) Destroy() {}

// ConnectMethods implements rest.Connecter: websockets begin with a GET.
func (t *talk) ConnectMethods() []string { return []string{http.MethodGet} }

// NewConnectOptions implements rest.Connecter: there are none.
func (t *talk) NewConnectOptions() (runtime.Object, bool, string) { return nil, false, "" }

// Connect implements rest.Connecter. The request is authenticated and authorized by now, whether it came through the aggregator or not.
func (t *talk) Connect(ctx context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	obj, err := t.rooms.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	room := obj.(*Room)
	user, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("nobody is asking")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		upgrader := websocket.Upgrader{Error: func(_ http.ResponseWriter, _ *http.Request, _ int, reason error) {
			responder.Error(apierrors.NewBadRequest(reason.Error()))
		}}
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return // the upgrader has said so
		}
		defer conn.Close()
		t.attend(room, &guest{Conn: conn}, user.GetName())
	}), nil
}

// attend lets everybody in the room hear what a guest says until he leaves.
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
			return // he left
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
