package clusterauthenticationtrust

import (
	"maps"
	"testing"

	"k8s.io/client-go/util/cert"
)

func TestUnionOfServersThatShareAnEtcd(t *testing.T) {
	t.Parallel()
	var cas [2]string
	for i := range cas {
		ca, _, err := cert.GenerateSelfSignedCertKey("ca.test", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		cas[i] = unionPEM(string(ca), "")
	}
	ours := map[string]string{
		clientCAKey:     cas[0],
		allowedNamesKey: `["a"]`,
		usernameKey:     `["X-Remote-User"]`,
	}
	for _, test := range []struct {
		name         string
		theirs, want map[string]string
	}{
		{"nothing", nil, ours},
		{"the same", ours, ours},
		{
			"more of everything",
			map[string]string{
				clientCAKey:     cas[1] + cas[0],
				allowedNamesKey: `["b"]`,
				usernameKey:     `["X-User","X-Remote-User"]`,
			},
			map[string]string{
				clientCAKey:     cas[0] + cas[1],
				allowedNamesKey: `["a","b"]`,
				usernameKey:     `["X-Remote-User","X-User"]`,
			},
		},
		{
			"any name",
			map[string]string{allowedNamesKey: `[]`},
			map[string]string{clientCAKey: cas[0], allowedNamesKey: `[]`, usernameKey: `["X-Remote-User"]`},
		},
		{
			"unreadable",
			map[string]string{clientCAKey: "x", allowedNamesKey: `"a`, usernameKey: "y", "other": "z"}, ours,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := union(ours, test.theirs); !maps.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
