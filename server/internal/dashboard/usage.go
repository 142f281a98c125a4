package dashboard

import (
	"encoding/json"
	"net/http"
	"net/url"
	"path"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resourceMetrics is the API that says what pods and nodes use.
var resourceMetrics = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}

// usage is what a pod or a node uses.
type usage struct {
	Inside string `json:"inside"`
	Name   string `json:"name"`
	CPU    int64  `json:"cpu"`    // in thousandths
	Memory int64  `json:"memory"` // in bytes
}

// usages are those of a list, if anybody serves them.
type usages struct {
	Served bool    `json:"served"`
	List   []usage `json:"list"`
}

// serveUsage returns what the pods of a namespace, or the nodes, use.
func (s *Server) serveUsage(w http.ResponseWriter, r *http.Request) {
	selected, err := selectionOf(r.URL.Query())
	if err == nil && selected.resource != pods && selected.resource != nodes {
		err = badInput("Only pods and nodes have metrics.")
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	query := url.Values{}
	if selected.labels != "" {
		query.Set("labelSelector", selected.labels)
	}
	selected.resource = resourceMetrics.WithResource(selected.resource.Resource)
	where, one := selected.path(selected.namespace), selected.name != ""
	if one {
		where = path.Join(selected.path(selected.inside), selected.name)
	}
	body, err := s.get(r.Context(), where, query.Encode(), "application/json")
	if err != nil {
		sendJSON(w, usages{List: []usage{}}) // that nobody serves them is no failure
		return
	}
	all, err := usagesOf(body, one)
	if err != nil {
		refuse(w, http.StatusBadGateway, "The metrics cannot be read: "+err.Error())
		return
	}
	sendJSON(w, usages{Served: true, List: all})
}

// usagesOf reads the metrics of a list, or of one object.
func usagesOf(body []byte, one bool) ([]usage, error) {
	type metrics struct {
		metav1.ObjectMeta `json:"metadata"`
		Usage             corev1.ResourceList `json:"usage"` // of a node
		Containers        []struct {
			Usage corev1.ResourceList `json:"usage"`
		} `json:"containers"`
	}
	var list struct{ Items []metrics }
	var err error
	if one {
		list.Items = make([]metrics, 1)
		err = json.Unmarshal(body, &list.Items[0])
	} else {
		err = json.Unmarshal(body, &list)
	}
	if err != nil {
		return nil, err
	}
	all := []usage{}
	for _, m := range list.Items[:min(len(list.Items), listLimit)] {
		u := usage{Inside: m.Namespace, Name: m.Name}
		used := []corev1.ResourceList{m.Usage}
		for _, c := range m.Containers {
			used = append(used, c.Usage)
		}
		for _, each := range used {
			u.CPU += each.Cpu().MilliValue()
			u.Memory += each.Memory().Value()
		}
		all = append(all, u)
	}
	return all, nil
}
