package chain

import (
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
)

// The limits hold for each user and for all, and what ends makes room. Administrators have room of
// their own.
func TestAttackManyStreams(t *testing.T) {
	t.Parallel()
	s := newStreams()
	s.ordinary.ofUser, s.ordinary.ofAll = 2, 3
	s.admins.ofUser, s.admins.ofAll = 4, 4
	alice, bob := &user.DefaultInfo{Name: "alice"}, &user.DefaultInfo{Name: "bob"}
	anonymous := &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	admin := &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}
	begin := func(who user.Info, refusal string) func() {
		t.Helper()
		end, got := s.begin(who)
		if (end == nil) != (refusal != "") || !strings.Contains(got, refusal) {
			t.Fatalf("a stream of %s: refused with %q, want %q", who.GetName(), got, refusal)
		}
		return end
	}
	first := begin(alice, "")
	begin(alice, "")
	begin(alice, `user "alice" has 2`)
	begin(bob, "")
	begin(anonymous, "3 long-running requests")
	for range 4 {
		begin(admin, "")
	}
	begin(admin, `user "admin" has 4`)
	first()
	end := begin(anonymous, "")
	begin(alice, "3 long-running requests")
	end()
	if len(s.ordinary.users) != 2 {
		t.Errorf("users without streams are remembered: %v", s.ordinary.users)
	}
	begin(alice, "")
}
