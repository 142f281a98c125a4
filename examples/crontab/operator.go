package main

import (
	"context"
	"fmt"
	"log"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

var (
	crontabs = schema.GroupVersionResource{
		Group:    "simple.extension.io",
		Version:  "v1",
		Resource: "crontabs",
	}
	crontabKind = schema.GroupVersionKind{Group: "simple.extension.io", Version: "v1", Kind: "CronTab"}
)

// cronTab has the fields of the custom resource that the operator uses.
type cronTab struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		CronSpec string `json:"cronSpec"`
		Image    string `json:"image"`
		Replicas int32  `json:"replicas"`
	} `json:"spec"`
	Status cronTabStatus `json:"status"`
}

type cronTabStatus struct {
	ObservedGeneration int64  `json:"observedGeneration"`
	Replicas           int32  `json:"replicas"`
	CronJob            string `json:"cronJob"`
}

// operator maintains a CronJob for every CronTab.
type operator struct {
	client  kubernetes.Interface
	dynamic dynamic.Interface

	typed    informers.SharedInformerFactory
	untyped  dynamicinformer.DynamicSharedInformerFactory
	cronJobs batchlisters.CronJobLister
	crontabs cache.GenericLister
	// queue holds the keys (namespace/name) of the CronTabs to sync.
	queue workqueue.TypedRateLimitingInterface[string]
}

func newOperator(config *rest.Config) (*operator, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	o := &operator{
		client:  client,
		dynamic: dynamicClient,
		typed:   informers.NewSharedInformerFactory(client, 0),
		untyped: dynamicinformer.NewDynamicSharedInformerFactory(dynamicClient, 0),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.DefaultTypedControllerRateLimiter[string]()),
	}
	tabs, jobs := o.untyped.ForResource(crontabs), o.typed.Batch().V1().CronJobs()
	o.crontabs, o.cronJobs = tabs.Lister(), jobs.Lister()
	// A CronJob has the same name as its CronTab, so a change of either one adds the same key to
	// the queue.
	enqueue := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			o.queue.Add(key)
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj any) { enqueue(obj) },
		DeleteFunc: enqueue,
	}
	for _, informer := range []cache.SharedIndexInformer{tabs.Informer(), jobs.Informer()} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// run runs the operator until ctx is done.
func (o *operator) run(ctx context.Context) {
	o.typed.Start(ctx.Done())
	o.untyped.Start(ctx.Done())
	defer o.typed.Shutdown()
	defer o.untyped.Shutdown()
	o.typed.WaitForCacheSync(ctx.Done())
	o.untyped.WaitForCacheSync(ctx.Done())

	var worker sync.WaitGroup
	worker.Go(func() {
		for {
			key, ended := o.queue.Get()
			if ended {
				return
			}
			if err := o.sync(ctx, key); err != nil && ctx.Err() == nil {
				log.Printf("%s: %v", key, err)
				o.queue.AddRateLimited(key)
			} else {
				o.queue.Forget(key)
			}
			o.queue.Done(key)
		}
	})
	<-ctx.Done()
	o.queue.ShutDown()
	worker.Wait()
}

// sync creates or updates the CronJob of a CronTab and then the status of the CronTab.
func (o *operator) sync(ctx context.Context, key string) error {
	tab, err := o.get(key)
	if apierrors.IsNotFound(err) {
		return nil // the garbage collector deletes the CronJob, which the CronTab owns
	}
	if err != nil {
		return err
	}
	if err := o.ensureCronJob(ctx, tab); err != nil {
		return err
	}
	status := cronTabStatus{
		ObservedGeneration: tab.Generation,
		Replicas:           tab.Spec.Replicas,
		CronJob:            tab.Name,
	}
	if tab.Status == status {
		return nil
	}
	patch := fmt.Appendf(nil, `{"status":{"observedGeneration":%d,"replicas":%d,"cronJob":%q}}`,
		status.ObservedGeneration, status.Replicas, status.CronJob)
	_, err = o.dynamic.Resource(crontabs).Namespace(tab.Namespace).Patch(ctx, tab.Name,
		"application/merge-patch+json", patch, metav1.PatchOptions{}, "status")
	return err
}

func (o *operator) get(key string) (*cronTab, error) {
	obj, err := o.crontabs.Get(key)
	if err != nil {
		return nil, err
	}
	tab := &cronTab{}
	return tab, runtime.DefaultUnstructuredConverter.FromUnstructured(
		obj.(*unstructured.Unstructured).Object, tab)
}

func (o *operator) ensureCronJob(ctx context.Context, tab *cronTab) error {
	wanted := newCronJob(tab)
	client := o.client.BatchV1().CronJobs(tab.Namespace)
	is, err := o.cronJobs.CronJobs(tab.Namespace).Get(tab.Name)
	if apierrors.IsNotFound(err) {
		log.Printf("%s/%s: create the CronJob", tab.Namespace, tab.Name)
		_, err = client.Create(ctx, wanted, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	if !metav1.IsControlledBy(is, tab) {
		return fmt.Errorf("the CronJob of the same name exists and is not controlled by the CronTab")
	}
	// DeepDerivative ignores the fields that the server has defaulted.
	if equality.Semantic.DeepDerivative(wanted.Spec, is.Spec) {
		return nil
	}
	log.Printf("%s/%s: update the CronJob", tab.Namespace, tab.Name)
	is = is.DeepCopy()
	is.Spec = wanted.Spec
	_, err = client.Update(ctx, is, metav1.UpdateOptions{})
	return err
}

func newCronJob(tab *cronTab) *batchv1.CronJob {
	return &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{
			Name: tab.Name, Namespace: tab.Namespace,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(tab, crontabKind)},
		},
		Spec: batchv1.CronJobSpec{
			Schedule: tab.Spec.CronSpec,
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
				Parallelism: &tab.Spec.Replicas,
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyOnFailure,
					Containers:    []corev1.Container{{Name: "main", Image: tab.Spec.Image}},
				}},
			}},
		},
	}
}
