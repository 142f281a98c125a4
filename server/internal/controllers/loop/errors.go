package loop

import apierrors "k8s.io/apimachinery/pkg/api/errors"

// IgnoreNotFound returns err, or nil if err says that an object does not exist.
func IgnoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// IgnoreChanged returns err, or nil if err says that an object has changed or does not exist. The
// informer of the object reports either, so there is no need to try again.
func IgnoreChanged(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return IgnoreNotFound(err)
}
