// Package protection removes the protection of objects that are no longer in use. Claims, volumes
// and volume attributes classes that are being deleted lose the finalizer that the admission plugin
// StorageObjectInUseProtection added, once nothing uses them any more.
//
// Most control planes never have such objects. So nothing is watched before the first of them is
// created, and their users are not watched before an object in use is deleted. Only the pods that
// use claims are watched as soon as there is a claim, because its status says whether it is unused.
package protection
