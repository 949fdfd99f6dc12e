// Package website is a small controller: a Website becomes a Deployment and a Service.
package website

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Kind is that of crds/websites.yaml.
var Kind = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Website"}

// New returns an empty Website.
func New() *unstructured.Unstructured {
	website := &unstructured.Unstructured{}
	website.SetGroupVersionKind(Kind)
	return website
}

// Reconciler makes the objects of Websites, and reports how many of their pods are ready.
type Reconciler struct{ client.Client }

// SetupWithManager starts the reconciler with a manager.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(manager).Named("website").
		For(New()).Owns(&appsv1.Deployment{}).Owns(&corev1.Service{}).Complete(r)
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	website := New()
	if err := r.Get(ctx, request.NamespacedName, website); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	replicas, _, err := unstructured.NestedInt64(website.Object, "spec", "replicas")
	if err != nil {
		return ctrl.Result{}, err
	}
	labels := map[string]string{"website": website.GetName()}
	name := metav1.ObjectMeta{Name: website.GetName(), Namespace: website.GetNamespace()}

	deployment := &appsv1.Deployment{ObjectMeta: name}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, deployment, func() error {
		count := int32(replicas)
		deployment.Spec.Replicas = &count
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		deployment.Spec.Template.Labels = labels
		deployment.Spec.Template.Spec.Containers = []corev1.Container{{
			Name: "web", Image: "fairlead", Command: []string{"fairlead", "echo", "--port=8080"},
			ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{Path: "/hostname", Port: intstr.FromInt32(8080)},
			}},
		}}
		return controllerutil.SetControllerReference(website, deployment, r.Scheme())
	}); err != nil {
		return ctrl.Result{}, err
	}

	service := &corev1.Service{ObjectMeta: name}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, service, func() error {
		service.Spec.Selector = labels
		service.Spec.Ports = []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}
		return controllerutil.SetControllerReference(website, service, r.Scheme())
	}); err != nil {
		return ctrl.Result{}, err
	}

	ready := int64(deployment.Status.ReadyReplicas)
	if known, _, _ := unstructured.NestedInt64(website.Object, "status", "ready"); known == ready {
		return ctrl.Result{}, nil
	}
	if err := unstructured.SetNestedField(website.Object, ready, "status", "ready"); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.Status().Update(ctx, website)
}
