package etcdconn

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kinproc/kinproc/server/internal/option"
	"github.com/kinproc/kinproc/server/internal/reload"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

// ErrEncrypted is why there are no snapshots and resets of encrypted objects. Both look into the
// objects, and a snapshot goes to others, who must not need the keys.
var ErrEncrypted = errors.New("not possible with encrypted storage: start without " +
	"EncryptionProviderConfig (--encryption-provider-config)")

// EncryptionConfig names the file that says what is encrypted, and how.
type EncryptionConfig struct {
	// File is empty if nothing is encrypted.
	File string
	// Reload lets changes of the file take effect at once.
	Reload bool
	Names  option.Names
}

// Encryption encrypts and decrypts what is stored.
type Encryption struct {
	value.ResourceTransformers
	// Checks are those of the key management services.
	Checks []healthz.HealthChecker
}

// OpenEncryption reads the configuration file, and follows its changes if it may change. Without a
// file, it returns nil.
func OpenEncryption(c EncryptionConfig, s *stopper.Stopper) (*Encryption, error) {
	if c.File == "" {
		return nil, nil
	}
	wrong := func(format string, args ...any) error {
		return c.Names.Wrong("EncryptionProviderConfig", format, args...)
	}
	content, err := os.ReadFile(c.File)
	if err != nil {
		return nil, wrong("%w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.Push("encryption", func() error { cancel(); return nil })
	loaded, err := encryptionconfig.LoadEncryptionConfig(ctx, c.File, c.Reload, "")
	if err != nil {
		return nil, wrong("%s: %w", c.File, err)
	}
	if !c.Reload {
		return &Encryption{encryptionconfig.StaticTransformers(loaded.Transformers),
			loaded.HealthChecks}, nil
	}
	dynamic := encryptionconfig.NewDynamicTransformers(loaded.Transformers, loaded.HealthChecks[0],
		cancel, loaded.KMSCloseGracePeriod)
	reload.Follow(s, c.File, content, func(ctx context.Context, _ []byte) error {
		return replace(ctx, dynamic, c.File)
	})
	return &Encryption{dynamic, []healthz.HealthChecker{dynamic}}, nil
}

// keyPatience is how long the key management services of a changed configuration may take.
const keyPatience = 10 * time.Second

// replace replaces the configuration by that of a file, if its key management services answer.
func replace(
	ctx context.Context, dynamic *encryptionconfig.DynamicTransformers, file string,
) error {
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
	dynamic.Set(loaded.Transformers, cancel, check, loaded.KMSCloseGracePeriod)
	return nil
}
