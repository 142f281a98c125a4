// Package serviceaccount issues and verifies the tokens of service accounts: JSON web tokens (RFC 7519) that say which account their
// bearer is, who may accept them, until when, and to which object's life they are bound (KEP-1205, KEP-4193).
//
//	tokens, err := serviceaccount.New(serviceaccount.Options{Key: key})
//	signed, err := tokens.Issue(ctx, core.Token{Account: account, Audiences: tokens.Audiences(), Lifetime: time.Hour})
//	…
//	auth := tokens.Authenticator(serviceaccount.FromClient(client.CoreV1()))
//
// Tokens kept in secrets of type kubernetes.io/service-account-token, as before Kubernetes 1.24, are issued and verified too.
package serviceaccount
