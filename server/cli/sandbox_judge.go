package cli

import (
	"fmt"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strings"

	genericapiserver "k8s.io/apiserver/pkg/server"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
)

// judge converts a kubeconfig to a configuration. It accepts only what kinproc itself writes:
// servers at loopback addresses, certificates and contexts. The error names anything else.
// Extensions are accepted but dropped, because only exec plugins read them. The function read
// returns the content of a certificate file.
func judge(
	written *clientcmdv1.Config, read func(path string) ([]byte, error),
) (*clientcmdapi.Config, error) {
	j := judgement{read: read}
	j.only("it", *written, "kind", "apiVersion", "clusters", "users", "contexts",
		"current-context", "extensions")
	if written.Kind != "" && written.Kind != "Config" ||
		written.APIVersion != "" && written.APIVersion != "v1" {
		j.refuse("it is of kind %q in version %q", written.Kind, written.APIVersion)
	}
	config := clientcmdapi.NewConfig()
	config.CurrentContext = written.CurrentContext
	for _, c := range written.Clusters {
		who := fmt.Sprintf("cluster %q", c.Name)
		j.only(who, c.Cluster, "server", "certificate-authority", "certificate-authority-data",
			"tls-server-name", "extensions")
		j.loopback(who, c.Cluster.Server)
		if name := c.Cluster.TLSServerName; name != "" &&
			name != genericapiserver.LoopbackClientServerNameOverride {
			j.refuse("%s has the tls-server-name %q, which kinproc does not write", who, name)
		}
		j.once(who, config.Clusters[c.Name] == nil)
		config.Clusters[c.Name] = &clientcmdapi.Cluster{
			Server:        c.Cluster.Server,
			TLSServerName: c.Cluster.TLSServerName,
			CertificateAuthorityData: j.pem(who, "certificate-authority", c.Cluster.CertificateAuthority,
				c.Cluster.CertificateAuthorityData),
		}
	}
	for _, u := range written.AuthInfos {
		who := fmt.Sprintf("user %q", u.Name)
		j.only(who, u.AuthInfo, "client-certificate", "client-certificate-data", "client-key",
			"client-key-data", "extensions")
		j.once(who, config.AuthInfos[u.Name] == nil)
		config.AuthInfos[u.Name] = &clientcmdapi.AuthInfo{
			ClientCertificateData: j.pem(who, "client-certificate", u.AuthInfo.ClientCertificate,
				u.AuthInfo.ClientCertificateData),
			ClientKeyData: j.pem(who, "client-key", u.AuthInfo.ClientKey, u.AuthInfo.ClientKeyData),
		}
	}
	for _, c := range written.Contexts {
		who := fmt.Sprintf("context %q", c.Name)
		j.only(who, c.Context, "cluster", "user", "namespace", "extensions")
		j.once(who, config.Contexts[c.Name] == nil)
		config.Contexts[c.Name] = &clientcmdapi.Context{
			Cluster:   c.Context.Cluster,
			AuthInfo:  c.Context.AuthInfo,
			Namespace: c.Context.Namespace,
		}
	}
	if j.err != nil {
		return nil, j.err
	}
	return config, nil
}

// judgement records the first reason to refuse a kubeconfig.
type judgement struct {
	read func(path string) ([]byte, error)
	err  error
}

func (j *judgement) refuse(format string, args ...any) {
	if j.err == nil {
		j.err = fmt.Errorf(format, args...)
	}
}

// only refuses fields that are set but not expected. That covers fields that later releases of the
// library add.
func (j *judgement) only(who string, object any, expected ...string) {
	v := reflect.ValueOf(object)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if !v.Field(i).IsZero() && !slices.Contains(expected, name) {
			j.refuse("%s has %s, which kinproc does not write", who, name)
		}
	}
}

func (j *judgement) once(who string, first bool) {
	if !first {
		j.refuse("%s is listed twice", who)
	}
}

func (j *judgement) loopback(who, server string) {
	u, err := url.Parse(server)
	if err != nil {
		j.refuse("the server of %s is not a URL", who)
		return
	}
	if host := u.Hostname(); host != "localhost" && !net.ParseIP(host).IsLoopback() {
		j.refuse("the server of %s, %q, is not at a loopback address", who, server)
	}
	if u.Path == "/" {
		u.Path = ""
	}
	if *u != (url.URL{Scheme: "https", Host: u.Host}) {
		j.refuse("the server of %s, %q, is not of the form https://address:port", who, server)
	}
}

// pem returns data if it is not empty, as the library does, and otherwise the content of the file.
// The file is checked in either case.
func (j *judgement) pem(who, field, path string, data []byte) []byte {
	if path == "" || j.err != nil {
		return append([]byte(nil), data...)
	}
	content, err := j.read(path)
	if err != nil {
		j.refuse("%s of %s: %w", field, who, err)
	}
	if len(data) > 0 {
		return append([]byte(nil), data...)
	}
	return content
}
