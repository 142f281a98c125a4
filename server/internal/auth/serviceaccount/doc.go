// Package serviceaccount issues and verifies service account tokens. They are JSON Web Tokens (RFC
// 7519) that contain the service account, the audiences, the expiration time, and the object they
// are bound to (KEP-1205, KEP-4193).
//
//	tokens, err := serviceaccount.New(serviceaccount.Options{Key: key})
//	signed, err := tokens.Issue(ctx, core.Token{
//		Account: account, Audiences: tokens.Audiences(), Lifetime: time.Hour,
//	})
//	…
//	auth := tokens.Authenticator(serviceaccount.FromClient(client.CoreV1()))
//
// The package also issues and verifies tokens that are stored in secrets of type
// kubernetes.io/service-account-token, which Kubernetes created automatically before 1.24.
package serviceaccount
