package legacy

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/kind"
)

// Secrets declares secrets.
func Secrets() *kind.Kind[*corev1.Secret] {
	return &kind.Kind[*corev1.Secret]{
		Plural:         "secrets",
		Default:        defaultSecret,
		Validate:       validateSecret,
		ValidateUpdate: validateSecretUpdate,
		Table: kind.Table[*corev1.Secret]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Type", Description: "Type of the secret."},
				{Name: "Data", Description: "Number of entries."},
				kind.AgeColumn(),
			},
			Row: func(s *corev1.Secret) []any {
				return []any{s.Name, string(s.Type), int64(len(s.Data)), kind.Age(s)}
			},
		},
		Warnings: warnSecret,
		Fields: map[string]func(*corev1.Secret) string{"type": func(s *corev1.Secret) string {
			return string(s.Type)
		}},
		Quirks: kind.Quirks{NameOnUpdate: true},
	}
}

func defaultSecret(s *corev1.Secret) {
	setIfEmpty(&s.Type, corev1.SecretTypeOpaque)
	// stringData is write-only: it is merged into data and not stored.
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}

func validateSecret(_ context.Context, s *corev1.Secret) field.ErrorList {
	var errs field.ErrorList
	data := field.NewPath("data")
	size := 0
	for key, value := range s.Data {
		errs = append(errs, rules.Invalid(data.Key(key), key, validation.IsConfigMapKey(key))...)
		size += len(value)
	}
	if size > maxDataSize {
		errs = append(errs, field.TooLong(data, "" /* do not repeat the data */, maxDataSize))
	}

	need := func(key string) {
		if _, ok := s.Data[key]; !ok {
			errs = append(errs, field.Required(data.Key(key),
				fmt.Sprintf("must be set for secrets of type %s", s.Type)))
		}
	}
	needJSON := func(key string) {
		need(key)
		if value, ok := s.Data[key]; ok && json.Unmarshal(value, &map[string]any{}) != nil {
			errs = append(errs, field.Invalid(data.Key(key), "<redacted>", "must be a JSON object"))
		}
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			errs = append(errs,
				field.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey),
					"must be the name of a service account"))
		}
	case corev1.SecretTypeDockercfg:
		needJSON(corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		needJSON(corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		_, user := s.Data[corev1.BasicAuthUsernameKey]
		_, password := s.Data[corev1.BasicAuthPasswordKey]
		if !user && !password {
			need(corev1.BasicAuthUsernameKey)
			need(corev1.BasicAuthPasswordKey)
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			errs = append(errs, field.Required(data.Key(corev1.SSHAuthPrivateKey),
				"must contain the private key"))
		}
	case corev1.SecretTypeTLS:
		need(corev1.TLSCertKey)
		need(corev1.TLSPrivateKeyKey)
	}
	return errs
}

func validateSecretUpdate(ctx context.Context, s, old *corev1.Secret) field.ErrorList {
	errs := apivalidation.ValidateImmutableField(s.Type, old.Type, field.NewPath("type"))
	if old.Immutable != nil && *old.Immutable {
		errs = append(errs, validateStaysImmutable(s.Immutable)...)
		errs = append(errs, forbidChange(s.Data, old.Data, "data")...)
	}
	return append(errs, validateSecret(ctx, s)...)
}

// validateStaysImmutable checks that an immutable object stays immutable. The argument is the new
// value of the field immutable.
func validateStaysImmutable(immutable *bool) field.ErrorList {
	if immutable != nil && *immutable {
		return nil
	}
	return field.ErrorList{
		field.Forbidden(field.NewPath("immutable"), "may not be unset: the object is immutable"),
	}
}

// forbidChange forbids changes to a field of an immutable object. Even a change from nil to an
// empty value is forbidden.
func forbidChange(value, old any, name string) field.ErrorList {
	if reflect.DeepEqual(value, old) {
		return nil
	}
	return field.ErrorList{
		field.Forbidden(field.NewPath(name), "field is immutable when `immutable` is set"),
	}
}

func warnSecret(_ context.Context, s, _ *corev1.Secret) []string {
	if s.Type != corev1.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey],
		s.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{fmt.Sprintf("data: %s and %s are not a valid key pair: %v",
			corev1.TLSCertKey, corev1.TLSPrivateKeyKey, err)}
	}
	return nil
}
