package extension

import (
	"net"
	"strconv"
	"testing"

	"k8s.io/client-go/rest"
)

// A server in a pod listens at a known port of all addresses.
func TestWhereItListens(t *testing.T) {
	t.Parallel()
	selector := map[string]string{"app": "chat"}
	for _, test := range []struct {
		options Options
		want    string
	}{
		{Options{RESTConfig: &rest.Config{}}, "127.0.0.1:0"},
		{Options{RESTConfig: &rest.Config{}, SecurePort: 443}, "127.0.0.1:443"},
		{Options{RESTConfig: &rest.Config{}, BindAddress: "::1"}, "[::1]:0"},
		{Options{}, ":8443"},
		{Options{RESTConfig: &rest.Config{}, Selector: selector}, ":8443"},
		{Options{BindAddress: "192.0.2.7", SecurePort: 443}, "192.0.2.7:443"},
	} {
		o, _ := test.options.complete() // there are no groups, which is not what is tested
		if got := net.JoinHostPort(o.BindAddress, strconv.Itoa(o.SecurePort)); got != test.want {
			t.Errorf("%+v: %s, want %s", test.options, got, test.want)
		}
	}
}
