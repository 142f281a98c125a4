package clusterauthenticationtrust

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// The keys of the config map. The two of certificates hold PEM, the others JSON arrays of strings.
const (
	clientCAKey     = "client-ca-file"
	proxyCAKey      = "requestheader-client-ca-file"
	allowedNamesKey = "requestheader-allowed-names"
	usernameKey     = "requestheader-username-headers"
	uidKey          = "requestheader-uid-headers"
	groupKey        = "requestheader-group-headers"
	extraKey        = "requestheader-extra-headers-prefix"
)

// Trust is what the server accepts. Either field may be nil.
type Trust struct {
	// ClientCA signs client certificates.
	ClientCA dynamiccertificates.CAContentProvider
	// RequestHeader says which proxies may name users in headers.
	RequestHeader *authenticatorfactory.RequestHeaderConfig
}

// data is the config map's content for what is trusted now.
func (t Trust) data() (map[string]string, error) {
	data := map[string]string{}
	if t.ClientCA != nil {
		data[clientCAKey] = string(t.ClientCA.CurrentCABundleContent())
	}
	r := t.RequestHeader
	if r == nil {
		return data, nil
	}
	data[proxyCAKey] = string(r.CAContentProvider.CurrentCABundleContent())
	for key, provider := range map[string]headerrequest.StringSliceProvider{
		allowedNamesKey: r.AllowedClientNames,
		usernameKey:     r.UsernameHeaders,
		uidKey:          r.UIDHeaders,
		groupKey:        r.GroupHeaders,
		extraKey:        r.ExtraHeaderPrefixes,
	} {
		values := []string{}
		if provider != nil {
			values = append(values, provider.Value()...)
		}
		text, err := json.Marshal(values)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		data[key] = string(text)
	}
	return data, nil
}

// addListener has l told about changes of the certificate authorities.
func (t Trust) addListener(l dynamiccertificates.Listener) {
	if t.ClientCA != nil {
		t.ClientCA.AddListener(l)
	}
	if t.RequestHeader != nil {
		t.RequestHeader.CAContentProvider.AddListener(l)
	}
}

// union adds to ours what theirs has beyond it. What cannot be read of theirs is dropped.
func union(ours, theirs map[string]string) map[string]string {
	all := maps.Clone(ours)
	for _, key := range []string{clientCAKey, proxyCAKey} {
		if merged := unionPEM(ours[key], theirs[key]); merged != "" {
			all[key] = merged
		}
	}
	for _, key := range []string{allowedNamesKey, usernameKey, uidKey, groupKey, extraKey} {
		var a, b []string
		if json.Unmarshal([]byte(ours[key]), &a) != nil || json.Unmarshal([]byte(theirs[key]), &b) != nil {
			continue
		}
		if key == allowedNamesKey && (len(a) == 0 || len(b) == 0) {
			all[key] = "[]" // one of the servers accepts any name
			continue
		}
		for _, value := range b {
			if !slices.Contains(a, value) {
				a = append(a, value)
			}
		}
		if text, err := json.Marshal(a); err == nil {
			all[key] = string(text)
		}
	}
	return all
}

func unionPEM(ours, theirs string) string {
	seen := map[string]bool{}
	var all bytes.Buffer
	for _, bundle := range []string{ours, theirs} {
		for rest := []byte(bundle); ; {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			if !seen[string(block.Bytes)] {
				seen[string(block.Bytes)] = true
				all.Write(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))
			}
		}
	}
	return all.String()
}
