package server

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/spf13/pflag"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kinproc/kinproc/server/internal/reload"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

func (o *Options) addEncryptionFlags(f *pflag.FlagSet) {
	f.StringVar(&o.EncryptionProviderConfig, "encryption-provider-config", o.EncryptionProviderConfig,
		"file with an EncryptionConfiguration: which resources are encrypted in etcd, and how")
	f.BoolVar(&o.EncryptionProviderConfigAutomaticReload,
		"encryption-provider-config-automatic-reload", o.EncryptionProviderConfigAutomaticReload,
		"let changes of that file take effect at once")
}

func (o *Options) validateEncryption() []error {
	var errs []error
	if o.EncryptionProviderConfig == "" && o.EncryptionProviderConfigAutomaticReload {
		errs = append(errs, o.wrong("EncryptionProviderConfigAutomaticReload",
			"encryption-provider-config-automatic-reload", "there is no %s",
			o.name("EncryptionProviderConfig", "encryption-provider-config")))
	}
	if o.EncryptionProviderConfig != "" && o.From != nil {
		errs = append(errs, o.wrong("From", "from", "a snapshot cannot be encrypted; leave out %s",
			o.name("EncryptionProviderConfig", "encryption-provider-config")))
	}
	return errs
}

// errEncrypted is why there are no snapshots and resets of encrypted objects. Both look into the
// objects, and a snapshot goes to others, who must not need the keys.
var errEncrypted = errors.New("not possible with encrypted storage: start without " +
	"EncryptionProviderConfig (--encryption-provider-config)")

// encryption encrypts and decrypts what is stored.
type encryption struct {
	value.ResourceTransformers
	checks []healthz.HealthChecker // of the key management services
	// dynamic is set if the configuration is followed. Its content was read from a file before.
	dynamic *encryptionconfig.DynamicTransformers
	content []byte
}

// newEncryption reads the configuration of the options. It returns nil if there is none.
func newEncryption(o *Options, s *stopper.Stopper) (*encryption, error) {
	file, follow := o.EncryptionProviderConfig, o.EncryptionProviderConfigAutomaticReload
	if file == "" {
		return nil, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, o.wrong("EncryptionProviderConfig", "encryption-provider-config", "%w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.Push("encryption", func() error { cancel(); return nil })
	loaded, err := encryptionconfig.LoadEncryptionConfig(ctx, file, follow, "")
	if err != nil {
		return nil, o.wrong("EncryptionProviderConfig", "encryption-provider-config", "%s: %w", file,
			err)
	}
	if !follow {
		return &encryption{
			ResourceTransformers: encryptionconfig.StaticTransformers(loaded.Transformers),
			checks:               loaded.HealthChecks,
		}, nil
	}
	dynamic := encryptionconfig.NewDynamicTransformers(loaded.Transformers, loaded.HealthChecks[0],
		cancel, loaded.KMSCloseGracePeriod)
	return &encryption{dynamic, []healthz.HealthChecker{dynamic}, dynamic, content}, nil
}

// keyPatience is how long the key management services of a changed configuration may take.
const keyPatience = 10 * time.Second

// applyTo adds the health checks, and begins to follow the configuration.
func (e *encryption) applyTo(generic *genericapiserver.Config, p *plane) {
	if e == nil {
		return
	}
	generic.HealthzChecks = append(generic.HealthzChecks, e.checks...)
	generic.ReadyzChecks = append(generic.ReadyzChecks, e.checks...)
	if e.dynamic == nil {
		return
	}
	file := p.options.EncryptionProviderConfig
	reload.Follow(p.stopper, file, e.content, func(ctx context.Context, _ []byte) error {
		ctx, cancel := context.WithCancel(ctx)
		loaded, err := encryptionconfig.LoadEncryptionConfig(ctx, file, true, "")
		if err != nil {
			cancel()
			return err
		}
		check := loaded.HealthChecks[0]
		patient, done := context.WithTimeout(ctx, keyPatience)
		defer done()
		request, err := http.NewRequestWithContext(patient, http.MethodGet, "/"+check.Name(), nil)
		if err == nil {
			err = check.Check(request)
		}
		if err != nil {
			cancel()
			return err
		}
		e.dynamic.Set(loaded.Transformers, cancel, check, loaded.KMSCloseGracePeriod)
		return nil
	})
}
