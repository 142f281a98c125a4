package legacy

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"
)

func TestProxyDialerChecksAddresses(t *testing.T) {
	t.Parallel()
	for address, allowed := range map[string]bool{
		"127.0.0.1":               false,
		"127.255.255.254":         false,
		"::1":                     false,
		"::ffff:127.0.0.1":        false,
		"0.0.0.0":                 false,
		"::":                      false,
		"::ffff:0.0.0.0":          false,
		"169.254.169.254":         false,
		"::ffff:169.254.169.254":  false,
		"fe80::1":                 false,
		"fe80::1%lo":              false,
		"224.0.0.1":               false,
		"ff02::1":                 false,
		"255.255.255.255":         false,
		"10.0.0.1":                true,
		"192.168.1.1":             true,
		"::ffff:10.0.0.1":         true,
		"203.0.113.1":             true,
		"2001:db8::1":             true,
		"fd00::1":                 true,
		"2001:db8::1%zone-of-own": true,
	} {
		ip := netip.MustParseAddr(address)
		if err := (proxyDialer{}).check(ip); errors.Is(err, errLocalAddress) == allowed {
			t.Errorf("%s: %v", address, err)
		}
		if err := (proxyDialer{local: true}).check(ip); err != nil {
			t.Errorf("%s, allowed: %v", address, err)
		}
	}
}

// TestProxyDialerChecksWhatItDials dials names that resolve to local addresses, and local addresses
// in other notations.
func TestProxyDialerChecksWhatItDials(t *testing.T) {
	t.Parallel()
	local := httptest.NewServer(http.NotFoundHandler())
	defer local.Close()
	at, err := url.Parse(local.URL)
	if err != nil {
		t.Fatal(err)
	}
	dial := func(d proxyDialer, host string) error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://"+host+":"+at.Port(), nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := d.transport().RoundTrip(r)
		if err == nil {
			response.Body.Close()
		}
		return err
	}
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"} {
		if err := dial(proxyDialer{}, host); !errors.Is(err, errLocalAddress) {
			t.Errorf("%s: %v", host, err)
		}
	}
	if err := dial(proxyDialer{local: true}, "localhost"); err != nil {
		t.Errorf("allowed: %v", err)
	}
}
