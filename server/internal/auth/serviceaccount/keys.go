package serviceaccount

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/client-go/util/keyutil"
)

// verifier is a public key that verifies the signatures of tokens.
type verifier struct {
	id     string
	method jwt.SigningMethod
	key    crypto.PublicKey
}

func newVerifier(key crypto.PublicKey) (verifier, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return verifier{}, fmt.Errorf("encode a public key: %w", err)
	}
	sum := sha256.Sum256(der)
	v := verifier{id: base64.RawURLEncoding.EncodeToString(sum[:]), key: key}
	switch k := key.(type) {
	case *rsa.PublicKey:
		v.method = jwt.SigningMethodRS256
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			v.method = jwt.SigningMethodES256
		case elliptic.P384():
			v.method = jwt.SigningMethodES384
		case elliptic.P521():
			v.method = jwt.SigningMethodES512
		default:
			return verifier{}, fmt.Errorf(
				"service account keys with the curve %s are not supported: use P-256", k.Curve.Params().Name)
		}
	default:
		return verifier{},
			fmt.Errorf("service account keys of type %T are not supported: use ECDSA (P-256) or RSA", key)
	}
	return v, nil
}

// PublicKeys reads the public keys in the PEM files of --service-account-key-file. From a private
// key, it takes the public half.
func PublicKeys(files ...string) ([]crypto.PublicKey, error) {
	var all []crypto.PublicKey
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read service account keys: %w", err)
		}
		keys, err := keyutil.ParsePublicKeysPEM(data)
		if err != nil {
			return nil, fmt.Errorf("%s does not contain a public key in PEM format: %w", file, err)
		}
		for _, key := range keys {
			all = append(all, key)
		}
	}
	return all, nil
}

// PrivateKey reads the private key in the PEM file of --service-account-signing-key-file.
func PrivateKey(file string) (crypto.Signer, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the service account signing key: %w", err)
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, fmt.Errorf("%s does not contain a private key in PEM format: %w", file, err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s holds a %T, which cannot be used for signing", file, parsed)
	}
	return key, nil
}

// jwk is a JSON Web Key (RFC 7517 and 7518).
type jwk struct {
	Use       string `json:"use"`
	Type      string `json:"kty"`
	ID        string `json:"kid"`
	Curve     string `json:"crv,omitempty"`
	Algorithm string `json:"alg"`
	X         string `json:"x,omitempty"`
	Y         string `json:"y,omitempty"`
	N         string `json:"n,omitempty"`
	E         string `json:"e,omitempty"`
}

func (v verifier) jwk() (jwk, error) {
	j := jwk{Use: "sig", ID: v.id, Algorithm: v.method.Alg()}
	encode := base64.RawURLEncoding.EncodeToString
	switch key := v.key.(type) {
	case *rsa.PublicKey:
		j.Type = "RSA"
		j.N = encode(key.N.Bytes())
		for e := key.E; e > 0; e >>= 8 {
			j.E = string([]byte{byte(e)}) + j.E
		}
		j.E = encode([]byte(j.E))
	case *ecdsa.PublicKey:
		point, err := key.Bytes()
		if err != nil {
			return j, fmt.Errorf("encode key %s: %w", v.id, err)
		}
		j.Type, j.Curve = "EC", key.Curve.Params().Name
		// The point is uncompressed: a byte 4, followed by both coordinates at full length.
		half := (len(point) - 1) / 2
		j.X, j.Y = encode(point[1:1+half]), encode(point[1+half:])
	}
	return j, nil
}

// keySet returns the document served at /openid/v1/jwks.
func keySet(verifiers []verifier) ([]byte, error) {
	set := struct {
		Keys []jwk `json:"keys"`
	}{Keys: []jwk{}}
	for _, v := range verifiers {
		key, err := v.jwk()
		if err != nil {
			return nil, err
		}
		set.Keys = append(set.Keys, key)
	}
	return json.Marshal(set)
}
