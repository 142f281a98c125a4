package sandbox

import (
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strings"

	genericapiserver "k8s.io/apiserver/pkg/server"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/kinproc/kinproc/chain/documents"
)

// decode parses a kubeconfig and returns it as a configuration if it is trusted, with the marks of
// its clusters.
func decode(
	data []byte, read func(path string) ([]byte, error),
) (*clientcmdapi.Config, map[string]mark, error) {
	var written clientcmdv1.Config
	if err := documents.DecodeStrict(data, &written); err != nil {
		return nil, nil, fmt.Errorf("it is not a kubeconfig that kinproc wrote: %w", err)
	}
	config, err := trusted(&written, read)
	if err != nil {
		return nil, nil, err
	}
	marks := map[string]mark{}
	for _, c := range written.Clusters {
		for _, e := range c.Cluster.Extensions {
			var m mark
			if e.Name == kubeconfigMark && json.Unmarshal(e.Extension.Raw, &m) == nil {
				marks[c.Name] = m
			}
		}
	}
	return config, marks, nil
}

// trusted converts a kubeconfig to a configuration. It accepts only what kinproc itself writes:
// servers at loopback addresses, certificates and contexts. The error names anything else.
// Extensions are accepted but dropped, because only exec plugins read them. The function read
// returns the content of a certificate file.
func trusted(
	written *clientcmdv1.Config, read func(path string) ([]byte, error),
) (*clientcmdapi.Config, error) {
	v := verification{read: read}
	v.only("it", *written, "kind", "apiVersion", "clusters", "users", "contexts",
		"current-context", "extensions")
	if written.Kind != "" && written.Kind != "Config" ||
		written.APIVersion != "" && written.APIVersion != "v1" {
		v.refuse("it is of kind %q in version %q", written.Kind, written.APIVersion)
	}
	config := clientcmdapi.NewConfig()
	config.CurrentContext = written.CurrentContext
	for _, c := range written.Clusters {
		who := fmt.Sprintf("cluster %q", c.Name)
		v.only(who, c.Cluster, "server", "certificate-authority", "certificate-authority-data",
			"tls-server-name", "extensions")
		v.loopback(who, c.Cluster.Server)
		if name := c.Cluster.TLSServerName; name != "" &&
			name != genericapiserver.LoopbackClientServerNameOverride {
			v.refuse("%s has the tls-server-name %q, which kinproc does not write", who, name)
		}
		v.once(who, config.Clusters[c.Name] == nil)
		config.Clusters[c.Name] = &clientcmdapi.Cluster{
			Server:        c.Cluster.Server,
			TLSServerName: c.Cluster.TLSServerName,
			CertificateAuthorityData: v.pem(who, "certificate-authority", c.Cluster.CertificateAuthority,
				c.Cluster.CertificateAuthorityData),
		}
	}
	for _, u := range written.AuthInfos {
		who := fmt.Sprintf("user %q", u.Name)
		v.only(who, u.AuthInfo, "client-certificate", "client-certificate-data", "client-key",
			"client-key-data", "extensions")
		v.once(who, config.AuthInfos[u.Name] == nil)
		config.AuthInfos[u.Name] = &clientcmdapi.AuthInfo{
			ClientCertificateData: v.pem(who, "client-certificate", u.AuthInfo.ClientCertificate,
				u.AuthInfo.ClientCertificateData),
			ClientKeyData: v.pem(who, "client-key", u.AuthInfo.ClientKey, u.AuthInfo.ClientKeyData),
		}
	}
	for _, c := range written.Contexts {
		who := fmt.Sprintf("context %q", c.Name)
		v.only(who, c.Context, "cluster", "user", "namespace", "extensions")
		v.once(who, config.Contexts[c.Name] == nil)
		config.Contexts[c.Name] = &clientcmdapi.Context{
			Cluster:   c.Context.Cluster,
			AuthInfo:  c.Context.AuthInfo,
			Namespace: c.Context.Namespace,
		}
	}
	if v.err != nil {
		return nil, v.err
	}
	return config, nil
}

// verification records the first reason to refuse a kubeconfig.
type verification struct {
	read func(path string) ([]byte, error)
	err  error
}

func (v *verification) refuse(format string, args ...any) {
	if v.err == nil {
		v.err = fmt.Errorf(format, args...)
	}
}

// only refuses fields that are set but not expected. That covers fields that later releases of the
// library add.
func (v *verification) only(who string, object any, expected ...string) {
	fields := reflect.ValueOf(object)
	for i := range fields.NumField() {
		name, _, _ := strings.Cut(fields.Type().Field(i).Tag.Get("json"), ",")
		if !fields.Field(i).IsZero() && !slices.Contains(expected, name) {
			v.refuse("%s has %s, which kinproc does not write", who, name)
		}
	}
}

func (v *verification) once(who string, first bool) {
	if !first {
		v.refuse("%s is listed twice", who)
	}
}

func (v *verification) loopback(who, server string) {
	u, err := url.Parse(server)
	if err != nil {
		v.refuse("the server of %s is not a URL", who)
		return
	}
	if host := u.Hostname(); host != "localhost" && !net.ParseIP(host).IsLoopback() {
		v.refuse("the server of %s, %q, is not at a loopback address", who, server)
	}
	if u.Path == "/" {
		u.Path = ""
	}
	if *u != (url.URL{Scheme: "https", Host: u.Host}) {
		v.refuse("the server of %s, %q, is not of the form https://address:port", who, server)
	}
}

// pem returns data if it is not empty, as the library does, and otherwise the content of the file.
// The file is checked in either case.
func (v *verification) pem(who, field, path string, data []byte) []byte {
	if path == "" || v.err != nil {
		return append([]byte(nil), data...)
	}
	content, err := v.read(path)
	if err != nil {
		v.refuse("%s of %s: %w", field, who, err)
	}
	if len(data) > 0 {
		return append([]byte(nil), data...)
	}
	return content
}
