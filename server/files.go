package server

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// optionFile is a file that an option names.
type optionFile struct {
	field, flag string
	path        string
	holds       string // what it must hold
	block       bool   // whether that is in PEM format
	empty       bool   // whether it may be empty
}

// largestFile bounds the files that options name. None of them is nearly as large.
const largestFile = 16 << 20

// checkFiles returns an error about the first file of an option that cannot be used. The libraries
// that read the files would name their functions instead of options.
func (o *Options) checkFiles() error {
	const certificate, authorities, key = "a certificate in PEM format",
		"certificates of authorities in PEM format", "a private key in PEM format"
	files := []optionFile{
		{"TLSCertFile", "tls-cert-file", o.TLSCertFile, certificate, true, false},
		{"TLSPrivateKeyFile", "tls-private-key-file", o.TLSPrivateKeyFile, key, true, false},
		{"ClientCAFile", "client-ca-file", o.ClientCAFile, authorities, true, false},
		{"RequestHeader.ClientCAFile", "requestheader-client-ca-file", o.RequestHeader.ClientCAFile,
			authorities, true, false},
		{"ProxyClientCertFile", "proxy-client-cert-file", o.ProxyClientCertFile, certificate, true, false},
		{"ProxyClientKeyFile", "proxy-client-key-file", o.ProxyClientKeyFile, key, true, false},
		{"EtcdCAFile", "etcd-cafile", o.EtcdCAFile, authorities, true, false},
		{"EtcdCertFile", "etcd-certfile", o.EtcdCertFile, certificate, true, false},
		{"EtcdKeyFile", "etcd-keyfile", o.EtcdKeyFile, key, true, false},
		{"ServiceAccountSigningKeyFile", "service-account-signing-key-file",
			o.ServiceAccountSigningKeyFile, key, true, false},
		{"OIDC.CAFile", "oidc-ca-file", o.OIDC.CAFile, authorities, true, false},
		{"TokenAuthFile", "token-auth-file", o.TokenAuthFile,
			`lines with token,user,uid,"group1,group2"`, false, true},
		{"EncryptionProviderConfig", "encryption-provider-config", o.EncryptionProviderConfig,
			"an EncryptionConfiguration", false, false},
		{"AuthenticationConfigFile", "authentication-config", o.AuthenticationConfigFile,
			"an AuthenticationConfiguration", false, false},
		{"TokenWebhook.ConfigFile", "authentication-token-webhook-config-file",
			o.TokenWebhook.ConfigFile, "a kubeconfig", false, false},
		{"AuthorizationConfigFile", "authorization-config", o.AuthorizationConfigFile,
			"an AuthorizationConfiguration", false, false},
		{"AuthorizationWebhook.ConfigFile", "authorization-webhook-config-file",
			o.AuthorizationWebhook.ConfigFile, "a kubeconfig", false, false},
		{"Audit.PolicyFile", "audit-policy-file", o.Audit.PolicyFile, "an audit Policy", false, false},
		{"Audit.WebhookOptions.ConfigFile", "audit-webhook-config-file",
			o.Audit.WebhookOptions.ConfigFile, "a kubeconfig", false, false},
		{"Admission.ConfigFile", "admission-control-config-file", o.Admission.ConfigFile,
			"an AdmissionConfiguration", false, false},
	}
	for _, path := range o.ServiceAccountKeyFiles {
		files = append(files, optionFile{"ServiceAccountKeyFiles", "service-account-key-file", path,
			"keys in PEM format", true, false})
	}
	for _, f := range files {
		if f.path == "" {
			continue
		}
		if err := f.check(); err != nil {
			return o.wrong(f.field, f.flag, "%w", err)
		}
	}
	log := o.Audit.LogOptions.Path
	if info, err := os.Stat(log); log != "" && err == nil && info.IsDir() {
		return o.wrong("Audit.LogOptions.Path", "audit-log-path",
			"%s is a directory; name a file to write, or - for the standard output", log)
	}
	return nil
}

// check returns what is wrong with the file. Pipes are left to those who read them, because what
// has been read from them is gone.
func (f optionFile) check() error {
	info, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no file %s; name one with %s", f.path, f.holds)
	case err != nil:
		return unreadable(f.path, err)
	case info.IsDir():
		return fmt.Errorf("%s is a directory; name a file with %s", f.path, f.holds)
	case info.Mode()&fs.ModeDevice != 0:
		return fmt.Errorf("%s is a device; name a file with %s", f.path, f.holds)
	case !info.Mode().IsRegular():
		return nil
	case info.Size() > largestFile:
		return fmt.Errorf("%s has %d bytes, and may have at most %d; name a file with %s", f.path,
			info.Size(), largestFile, f.holds)
	}
	opened, err := os.Open(f.path)
	if err != nil {
		return unreadable(f.path, err)
	}
	defer opened.Close()
	data, err := io.ReadAll(io.LimitReader(opened, largestFile))
	switch {
	case err != nil:
		return unreadable(f.path, err)
	case len(bytes.TrimSpace(data)) == 0 && !f.empty:
		return fmt.Errorf("%s is empty; it must hold %s", f.path, f.holds)
	}
	if block, _ := pem.Decode(data); f.block && block == nil {
		return fmt.Errorf("%s has no PEM block; it must hold %s", f.path, f.holds)
	}
	return nil
}

// unreadable returns why a file cannot be read, without the name of a function.
func unreadable(path string, err error) error {
	if of := new(fs.PathError); errors.As(err, &of) {
		err = of.Err
	}
	return fmt.Errorf("%s cannot be read: %w; check who may read it", path, err)
}
