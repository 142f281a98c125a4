package scheduler

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// recorder sends events of the API group events.k8s.io, as kube-scheduler does. It sends one after
// the other, because binding pods is more urgent. The recorder of client-go has a goroutine for
// each event, which nobody waits for.
type recorder struct {
	client   kubernetes.Interface
	instance string

	sending sync.WaitGroup // the goroutine that sends, which there is while events are pending
	mu      sync.Mutex
	pending []pendingEvent // guarded by mu
	busy    bool           // guarded by mu
}

type pendingEvent struct {
	ctx   context.Context // of the work that the event is about
	event *eventsv1.Event
}

func newRecorder(client kubernetes.Interface) *recorder {
	host, _ := os.Hostname()
	return &recorder{client: client, instance: profile + "-" + host}
}

// send sends an event about a pod without waiting for it.
func (r *recorder) send(
	ctx context.Context, p *corev1.Pod, eventType, reason, action, note string,
) {
	const longest = 1024
	if len(note) > longest {
		note = note[:longest-4] + " ..."
	}
	now := time.Now()
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: fmt.Sprintf("%s.%x", p.Name, now.UnixNano()),
		},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: profile,
		ReportingInstance:   r.instance,
		Action:              action,
		Reason:              reason,
		Regarding: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID,
			ResourceVersion: p.ResourceVersion,
		},
		Note: note,
		Type: eventType,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending = append(r.pending, pendingEvent{ctx, e})
	if !r.busy {
		r.busy = true
		r.sending.Go(func() {
			for list := r.next(); len(list) > 0; list = r.next() {
				for _, p := range list {
					// An error changes nothing else.
					_, _ = r.client.EventsV1().Events(p.event.Namespace).Create(p.ctx, p.event,
						metav1.CreateOptions{})
				}
			}
		})
	}
}

// next returns the pending events. If there are none, the goroutine that sends ends.
func (r *recorder) next() []pendingEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.pending
	r.pending, r.busy = nil, len(list) > 0
	return list
}
