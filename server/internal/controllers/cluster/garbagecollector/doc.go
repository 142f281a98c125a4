// Package garbagecollector deletes objects whose owners are gone. It finishes deletions in the
// foreground, which wait for dependents, and those that orphan dependents.
//
// kube-controller-manager has an informer for each resource that can be deleted, and keeps a node
// for each object. This controller follows the metadata of all stored objects in etcd's order
// instead, which needs no requests and no watch caches, and knows custom resources from their first
// object on. It keeps nodes only for objects that have owners, are named as owners, or wait for
// dependents. Only the objects of extension API servers come from informers.
//
// An owner that has no node is looked up when a dependent names it. A dependent is deleted with its
// UID and its resource version as preconditions, so that it still is as the controller knows it.
package garbagecollector
