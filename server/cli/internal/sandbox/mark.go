package sandbox

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// kubeconfigMark is the name of the extension that marks the entries written by kinproc.
const kubeconfigMark = "kinproc"

// mark is the content of that extension.
type mark struct {
	WrittenBy string `json:"writtenBy"`
	// Directory is the control plane's folder.
	Directory string `json:"directory,omitempty"`
	// Previous is what the current context was before, and will be again. Only contexts have it.
	Previous string `json:"previous,omitempty"`
	// MAC is that of the server and its authority. Only the cluster in the folder's own kubeconfig
	// has it.
	MAC string `json:"mac,omitempty"`
}

func (m mark) extensions() map[string]runtime.Object {
	data, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings can be encoded
	}
	return map[string]runtime.Object{
		kubeconfigMark: &runtime.Unknown{Raw: data, ContentType: runtime.ContentTypeJSON},
	}
}

// readMark returns the mark among an entry's extensions, and whether there is one. A mark that
// cannot be parsed names no directory.
func readMark(extensions map[string]runtime.Object) (m mark, ok bool) {
	data, ok := extensions[kubeconfigMark].(*runtime.Unknown)
	if !ok || json.Unmarshal(data.Raw, &m) != nil {
		return mark{}, ok
	}
	return m, true
}

// clusterText returns what the MAC of a cluster is made of: the server, and how it is recognized.
func clusterText(c *clientcmdapi.Cluster) ([]byte, error) {
	return json.Marshal([]string{
		c.Server, c.TLSServerName, string(c.CertificateAuthorityData),
	})
}
