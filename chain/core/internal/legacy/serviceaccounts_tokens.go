package legacy

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	// defaultTokenSeconds is the lifetime of a token if the request does not specify one.
	defaultTokenSeconds = 3600
	// minTokenSeconds and maxTokenSeconds limit the lifetime that a request may ask for.
	minTokenSeconds = 600
	maxTokenSeconds = 1 << 32
)

// TokenIssuer signs the tokens of service accounts.
type TokenIssuer interface {
	// Audiences returns the audiences of the API server, the default for requests that name none.
	Audiences() []string
	// MaxLifetime returns the maximum lifetime of a token. Zero means no limit.
	MaxLifetime() time.Duration
	// Issue signs a token. The issuer may let the token live longer than t.Lifetime.
	Issue(ctx context.Context, t Token) (string, error)
}

// Token is the content of a service account token.
type Token struct {
	Account *corev1.ServiceAccount
	// At most one of Pod, Secret and Node is the object that the token is bound to. If the token is
	// bound to a pod that is assigned to a node, Node is set too, possibly without a UID.
	Pod    *corev1.Pod
	Secret *corev1.Secret
	Node   *corev1.Node
	// Audiences are the audiences that may accept the token.
	Audiences []string
	// Lifetime is the time until the token expires.
	Lifetime time.Duration
}

// BoundObjects reads the objects that tokens are bound to. The CoreV1 client of a clientset
// implements it.
type BoundObjects interface {
	typedcorev1.PodsGetter
	typedcorev1.SecretsGetter
	typedcorev1.NodesGetter
}

// registerTokenRequest registers TokenRequest, the kind of serviceaccounts/token. It belongs to
// authentication.k8s.io, which has no resource of this kind.
func registerTokenRequest(scheme *runtime.Scheme) error {
	if err := authenticationv1.AddToScheme(scheme); err != nil {
		return err
	}
	internal := schema.GroupVersion{
		Group:   authenticationv1.GroupName,
		Version: runtime.APIVersionInternal,
	}
	scheme.AddKnownTypes(internal, &authenticationv1.TokenRequest{})
	scheme.AddTypeDefaultingFunc(&authenticationv1.TokenRequest{}, func(o any) {
		if spec := &o.(*authenticationv1.TokenRequest).Spec; spec.ExpirationSeconds == nil {
			spec.ExpirationSeconds = new(int64(defaultTokenSeconds))
		}
	})
	return nil
}

// tokenREST implements serviceaccounts/token.
type tokenREST struct {
	accounts *genericregistry.Store
	issuer   TokenIssuer
	objects  BoundObjects
}

var (
	_ rest.NamedCreater             = &tokenREST{}
	_ rest.GroupVersionKindProvider = &tokenREST{}

	_ rest.SubresourceObjectMetaPreserver = &tokenREST{}
)

func (r *tokenREST) New() runtime.Object { return &authenticationv1.TokenRequest{} }

// Destroy does nothing: the main resource owns the store.
func (r *tokenREST) Destroy() {}

func (r *tokenREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")
}

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate returns true to keep the UID of the
// request, which is a precondition on the service account.
func (r *tokenREST) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

func (r *tokenREST) Create(
	ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc,
	_ *metav1.CreateOptions,
) (runtime.Object, error) {
	req := obj.(*authenticationv1.TokenRequest)
	if r.issuer == nil || r.objects == nil {
		return nil,
			apierrors.NewServiceUnavailable("this server has no key for signing service account tokens")
	}
	namespace := genericapirequest.NamespaceValue(ctx)
	if err := mismatch(req, namespace, name); err != nil {
		return nil, apierrors.NewInvalid(r.GroupVersionKind(schema.GroupVersion{}).GroupKind(), name,
			field.ErrorList{err})
	}
	found, err := r.accounts.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	account := found.(*corev1.ServiceAccount)

	switch req.UID {
	case "":
		req.UID = account.UID
	case account.UID:
	default:
		return nil, apierrors.NewConflict(schema.GroupResource{
			Group:    authenticationv1.GroupName,
			Resource: "TokenRequest",
		}, name, fmt.Errorf("the UID in the request is %s, but the UID of the service account is %s",
			req.UID, account.UID))
	}
	req.Name, req.Namespace = name, namespace
	if len(req.Spec.Audiences) == 0 {
		req.Spec.Audiences = r.issuer.Audiences()
	}
	now := time.Now()
	req.CreationTimestamp = metav1.NewTime(now)
	req.Status = authenticationv1.TokenRequestStatus{}

	if errs := validateTokenRequest(req); len(errs) > 0 {
		return nil, apierrors.NewInvalid(r.GroupVersionKind(schema.GroupVersion{}).GroupKind(), "", errs)
	}
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}

	lifetime := time.Duration(*req.Spec.ExpirationSeconds) * time.Second
	if longest := r.issuer.MaxLifetime(); longest > 0 && lifetime > longest {
		warning.AddWarning(ctx, "",
			fmt.Sprintf("token lifetime limited to %s instead of the requested %s", longest, lifetime))
		lifetime = longest
		*req.Spec.ExpirationSeconds = int64(longest / time.Second)
	}
	token := Token{Account: account, Audiences: req.Spec.Audiences, Lifetime: lifetime}
	if ref := req.Spec.BoundObjectRef; ref != nil {
		if err := r.bind(ctx, &token, ref); err != nil {
			return nil, err
		}
	}
	signed, err := r.issuer.Issue(ctx, token)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("sign token: %w", err))
	}
	out := req.DeepCopy()
	// Count from before signing: a client must not believe that the token lives longer than it
	// does.
	out.Status = authenticationv1.TokenRequestStatus{
		Token:               signed,
		ExpirationTimestamp: metav1.NewTime(now.Add(lifetime)),
	}
	return out, nil
}

// mismatch returns the first mismatch between the body and the URL, or nil.
func mismatch(req *authenticationv1.TokenRequest, namespace, name string) *field.Error {
	switch {
	case req.Name != "" && req.Name != name:
		return field.Invalid(field.NewPath("metadata", "name"), req.Name,
			"must match the name of the service account")
	case req.Namespace != "" && req.Namespace != namespace:
		return field.Invalid(field.NewPath("metadata", "namespace"), req.Namespace,
			"must match the namespace of the service account")
	}
	return nil
}

func validateTokenRequest(req *authenticationv1.TokenRequest) field.ErrorList {
	path := field.NewPath("spec", "expirationSeconds")
	switch seconds := *req.Spec.ExpirationSeconds; {
	case seconds < minTokenSeconds:
		return field.ErrorList{
			field.Invalid(path, seconds, fmt.Sprintf("must be at least %d seconds", minTokenSeconds)),
		}
	case seconds > maxTokenSeconds:
		return field.ErrorList{
			field.Invalid(path, seconds, fmt.Sprintf("must be at most %d seconds", int64(maxTokenSeconds))),
		}
	}
	return nil
}

// bind looks up the object that ref names and sets it in t.
func (r *tokenREST) bind(
	ctx context.Context, t *Token, ref *authenticationv1.BoundObjectReference,
) error {
	// Check the name here, not in the client that gets the object: the error must blame the
	// request, not the server.
	if ref.Name == "" {
		return apierrors.NewBadRequest("spec.boundObjectRef.name must be specified")
	}
	if msgs := path.IsValidPathSegmentName(ref.Name); len(msgs) > 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("spec.boundObjectRef.name: %q %s", ref.Name, msgs[0]))
	}
	var err error
	var uid types.UID
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	namespace := t.Account.Namespace
	switch gvk.GroupKind() {
	case schema.GroupKind{Kind: "Pod"}:
		if t.Pod, err = r.objects.Pods(namespace).Get(ctx, ref.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		uid = t.Pod.UID
		if t.Pod.Spec.ServiceAccountName != t.Account.Name {
			return apierrors.NewBadRequest(
				fmt.Sprintf("pod %q does not run as service account %q: the token cannot be bound to it",
					ref.Name, t.Account.Name))
		}
		if node := t.Pod.Spec.NodeName; node != "" {
			t.Node, err = r.objects.Nodes().Get(ctx, node, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				t.Node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
			} else if err != nil {
				return err
			}
		}
	case schema.GroupKind{Kind: "Node"}:
		if t.Node, err = r.objects.Nodes().Get(ctx, ref.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		uid = t.Node.UID
	case schema.GroupKind{Kind: "Secret"}:
		if t.Secret, err = r.objects.Secrets(namespace).Get(ctx, ref.Name,
			metav1.GetOptions{}); err != nil {
			return err
		}
		uid = t.Secret.UID
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("a token cannot be bound to an object of type %s",
			gvk.GroupKind()))
	}
	if ref.UID != "" && ref.UID != uid {
		return apierrors.NewConflict(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, ref.Name,
			fmt.Errorf("the object's UID is %s, not %s: it may have been deleted and recreated",
				uid, ref.UID))
	}
	return nil
}
