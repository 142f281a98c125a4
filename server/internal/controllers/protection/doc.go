// Package protection lets protected objects go: claims, volumes and volume attributes classes that are being deleted lose the finalizer
// that the admission plugin StorageObjectInUseProtection gave them once nobody uses them any more.
//
//	go protection.Claims(protection.Dependencies{…}).Run(ctx)
//
// Most control planes never see such objects, so nothing is watched before the first of them appears, and nothing of those who use them
// before one that is used is deleted.
package protection
