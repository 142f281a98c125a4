package extension_test

import (
	"context"
	"net/http"
	"slices"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/kind"
)

// Room is a kind with two versions: in v2, seats are in the spec; in v1, they are called chairs.
type Room struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              RoomSpec   `json:"spec"`
	Status            RoomStatus `json:"status,omitempty"`
}

type RoomSpec struct {
	Topic string   `json:"topic"`
	Seats *int32   `json:"seats,omitempty"`
	Doors []Door   `json:"doors,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	Tags  []string `json:"tags,omitempty"`
}

// SwaggerDoc returns the descriptions of the fields.
func (RoomSpec) SwaggerDoc() map[string]string {
	return map[string]string{
		"":      "What a room is like.",
		"topic": "What people talk about.",
		"seats": "How many people may be in the room.",
	}
}

type Door struct {
	Name  string `json:"name"`
	Color string `json:"color,omitempty"`
}

type RoomStatus struct {
	Present int32 `json:"present,omitempty"`
}

type RoomList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Room `json:"items"`
}

func (r *Room) DeepCopyObject() runtime.Object {
	out := *r
	r.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Doors, out.Spec.Tags = slices.Clone(r.Spec.Doors), slices.Clone(r.Spec.Tags)
	if r.Spec.Seats != nil {
		out.Spec.Seats = new(*r.Spec.Seats)
	}
	return &out
}

func (l *RoomList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = nil
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*Room))
	}
	return &out
}

// OldRoom is served as Room of v1.
type OldRoom struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Topic             string `json:"topic,omitempty"`
	Chairs            *int32 `json:"chairs,omitempty"`
}

type OldRoomList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []OldRoom `json:"items"`
}

func (r *OldRoom) DeepCopyObject() runtime.Object {
	out := *r
	r.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

func (l *OldRoomList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = nil
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*OldRoom))
	}
	return &out
}

var (
	chatV2 = schema.GroupVersion{Group: "chat.example.com", Version: "v2"}
	chatV1 = schema.GroupVersion{Group: "chat.example.com", Version: "v1"}
)

func addV2(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(chatV2, &Room{}, &RoomList{})
	metav1.AddToGroupVersion(scheme, chatV2)
	return nil
}

func addV1(scheme *runtime.Scheme) error {
	scheme.AddKnownTypeWithName(chatV1.WithKind("Room"), &OldRoom{})
	scheme.AddKnownTypeWithName(chatV1.WithKind("RoomList"), &OldRoomList{})
	metav1.AddToGroupVersion(scheme, chatV1)
	return nil
}

// chat declares the group.
func chat() kind.Group {
	return kind.Group{
		Name: chatV2.Group,
		Versions: []kind.GroupVersion{
			{Version: "v2", AddToScheme: addV2}, {Version: "v1", AddToScheme: addV1},
		},
		Kinds: []kind.Declaration{&kind.Kind[*Room]{
			Plural: "rooms",
			Versions: []kind.Version{kind.ServedAs(
				func(in *OldRoom, out *Room) error {
					out.ObjectMeta, out.Spec.Topic, out.Spec.Seats = in.ObjectMeta, in.Topic, in.Chairs
					return nil
				},
				func(in *Room, out *OldRoom) error {
					out.ObjectMeta, out.Topic, out.Chairs = in.ObjectMeta, in.Spec.Topic, in.Spec.Seats
					return nil
				}, nil)},
			Default: func(r *Room) {
				if r.Spec.Seats == nil {
					r.Spec.Seats = new(int32(10))
				}
			},
			Validate: func(_ context.Context, r *Room) field.ErrorList {
				if *r.Spec.Seats < 0 {
					return field.ErrorList{field.Invalid(field.NewPath("spec", "seats"),
						*r.Spec.Seats, "must not be negative")}
				}
				return nil
			},
			Table: kind.Table[*Room]{
				Columns: []kind.Column{kind.NameColumn(), {Name: "Topic"}, kind.AgeColumn()},
				Row:     func(r *Room) []any { return []any{r.Name, r.Spec.Topic, kind.Age(r)} },
			},
			Status: &kind.Status[*Room]{},
			Subresources: []kind.Subresource[*Room]{{
				Name: "talk",
				New:  func(*genericregistry.Store) rest.Storage { return echo{} },
			}},
		}},
	}
}

// echo is a websocket that greets the user and returns what it is sent.
type echo struct{}

func (echo) New() runtime.Object                               { return &Room{} }
func (echo) Destroy()                                          {}
func (echo) ConnectMethods() []string                          { return []string{http.MethodGet} }
func (echo) NewConnectOptions() (runtime.Object, bool, string) { return nil, false, "" }
func (echo) Connect(
	ctx context.Context, name string, _ runtime.Object, _ rest.Responder,
) (http.Handler, error) {
	user, _ := request.UserFrom(ctx)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		greeting := "hello, " + user.GetName() + ", in " + name
		if err := conn.WriteMessage(websocket.TextMessage, []byte(greeting)); err != nil {
			return
		}
		for {
			of, data, err := conn.ReadMessage()
			if err != nil || conn.WriteMessage(of, data) != nil {
				return
			}
		}
	}), nil
}
