package resource

import (
	"context"
	"slices"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

type rights []string

func (r rights) Authorize(
	_ context.Context, a authorizer.Attributes,
) (authorizer.Decision, string, error) {
	asked := a.GetVerb() + " " + a.GetResource() + "/" + a.GetSubresource() + " " + a.GetNamespace() +
		"/" + a.GetName()
	if slices.Contains(r, asked) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func TestStatusRights(t *testing.T) {
	t.Parallel()
	const (
		binding    = "update resourceclaims/binding /"
		arbitrary  = "arbitrary-node:update resourceclaims/driver ns/d"
		associated = "associated-node:update resourceclaims/driver ns/d"

		// The claim is allocated on node n, and the driver d has reported on device b.
		results = `{'results':[{'request':'r','driver':'d','pool':'p','device':'a'},
			{'request':'r','driver':'d','pool':'p','device':'b'}]}`
		on = `'nodeSelector':{'nodeSelectorTerms':[{'matchFields':[
			{'key':'metadata.name','operator':'In','values':['n']}]}]}`
		before = `{'status':{'allocation':{'devices':` + results + `,` + on +
			`},'devices':[{'driver':'d','pool':'p','device':'b'}]}}`
		reports = `{'status':{'devices':[{'driver':'d','pool':'p','device':'a'},
			{'driver':'d','pool':'p','device':'b'}]}}`
		reserve = `{'status':{'reservedFor':[{'resource':'pods','name':'a','uid':'1'}]}}`
		unbind  = `{'status':{'allocation':null,'devices':null}}`
	)
	at := func(name, node string) user.Info {
		return &user.DefaultInfo{
			Name:  name,
			Extra: map[string][]string{serviceaccount.NodeNameKey: {node}},
		}
	}
	account := "system:serviceaccount:ns:driver"
	for name, test := range map[string]struct {
		user   user.Info
		rights rights
		change string
		want   []string
	}{
		"nothing changes":       {change: `{}`},
		"reservation":           {change: reserve, want: []string{"status.allocation Forbidden"}},
		"reservation by right":  {change: reserve, rights: rights{binding}},
		"deallocation":          {change: unbind, want: []string{"status.allocation Forbidden"}},
		"deallocation by right": {change: unbind, rights: rights{binding}},
		"report": {
			change: reports,
			want:   []string{"status.devices Forbidden"},
		},
		"report taken back": {
			change: `{'status':{'devices':null}}`,
			want:   []string{"status.devices Forbidden"},
		},
		"report by right": {change: reports, rights: rights{arbitrary}},
		"report from the node": {
			change: reports,
			rights: rights{associated},
			user:   at(account, "n"),
		},
		"report from another node": {
			change: reports,
			rights: rights{associated},
			user:   at(account, "m"),
			want:   []string{"status.devices Forbidden"},
		},
		"report of no service account": {
			change: reports,
			rights: rights{associated},
			user:   at("system:node:n", "n"),
			want:   []string{"status.devices Forbidden"},
		},
		"report from the node by any right": {
			change: reports,
			rights: rights{arbitrary},
			user:   at(account, "n"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := ResourceClaims(nil, test.rights)
			if test.user == nil {
				test.user = &user.DefaultInfo{Name: "u"}
			}
			ctx := request.WithUser(t.Context(), test.user)
			ctx = request.WithRequestInfo(ctx,
				&request.RequestInfo{IsResourceRequest: true, Verb: "update", APIGroup: "resource.k8s.io",
					APIVersion: "v1", Resource: "resourceclaims", Subresource: "status", Namespace: "ns",
					Name: "x"})
			old := decode(t, k, &resourcev1.ResourceClaim{}, validClaim, before)
			c := decode(t, k, &resourcev1.ResourceClaim{}, validClaim, before, test.change)
			k.Status.Prepare(ctx, c, old)
			if got := kindtest.Causes(k.Status.Validate(ctx, c, old)); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
