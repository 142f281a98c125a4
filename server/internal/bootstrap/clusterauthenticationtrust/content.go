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

// The keys of the config map. The values of the two CA keys are PEM, the others are JSON arrays of
// strings.
const (
	clientCAKey     = "client-ca-file"
	proxyCAKey      = "requestheader-client-ca-file"
	allowedNamesKey = "requestheader-allowed-names"
	usernameKey     = "requestheader-username-headers"
	uidKey          = "requestheader-uid-headers"
	groupKey        = "requestheader-group-headers"
	extraKey        = "requestheader-extra-headers-prefix"
)

// Trust is what the server accepts for authentication. Either field may be nil.
type Trust struct {
	// ClientCA provides the authorities that sign client certificates.
	ClientCA dynamiccertificates.CAContentProvider
	// RequestHeader configures which proxies may name users in request headers.
	RequestHeader *authenticatorfactory.RequestHeaderConfig
}

// data returns the content of the config map for what is currently trusted.
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

// addListener registers l for changes of the certificate authorities.
func (t Trust) addListener(l dynamiccertificates.Listener) {
	if t.ClientCA != nil {
		t.ClientCA.AddListener(l)
	}
	if t.RequestHeader != nil {
		t.RequestHeader.CAContentProvider.AddListener(l)
	}
}

// union adds to ours what only theirs contains. Values in theirs that cannot be parsed are dropped.
func union(ours, theirs map[string]string) map[string]string {
	all := maps.Clone(ours)
	for _, key := range []string{clientCAKey, proxyCAKey} {
		if merged := unionPEM(ours[key], theirs[key]); merged != "" {
			all[key] = merged
		}
	}
	for _, key := range []string{allowedNamesKey, usernameKey, uidKey, groupKey, extraKey} {
		var a, b []string
		if json.Unmarshal([]byte(ours[key]), &a) != nil ||
			json.Unmarshal([]byte(theirs[key]), &b) != nil {
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
