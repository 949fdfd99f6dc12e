package website

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Runs the controller against the cluster of KUBECONFIG, as "fairlead run" sets it: envtest installs the
// CustomResourceDefinitions there, and starts no API server of its own.
func start(t *testing.T) client.Client {
	t.Helper()
	existing := true
	environment := &envtest.Environment{
		UseExistingCluster: &existing,
		CRDDirectoryPaths:  []string{"crds"},
	}
	config, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme.Scheme,
		Metrics: server.Options{BindAddress: "0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := (&Reconciler{manager.GetClient()}).SetupWithManager(manager); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	direct, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return direct
}

func eventually(t *testing.T, what string, condition wait.ConditionWithContextFunc) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 2*time.Minute, true, condition); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestWebsite(t *testing.T) {
	cluster := start(t)
	website := New()
	website.SetName("home")
	website.SetNamespace("default")
	website.Object["spec"] = map[string]any{"replicas": int64(2)}
	if err := cluster.Create(t.Context(), website); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKeyFromObject(website)

	t.Run("a Website that the schema forbids is refused", func(t *testing.T) {
		wrong := New()
		wrong.SetName("wrong")
		wrong.SetNamespace("default")
		wrong.Object["spec"] = map[string]any{"replicas": int64(9)}
		if err := cluster.Create(t.Context(), wrong); !apierrors.IsInvalid(err) {
			t.Fatalf("created, or another error: %v", err)
		}
	})

	// With envtest's own API server, a test ends at the Deployment: nothing runs pods there.
	t.Run("its pods run, and the status says so", func(t *testing.T) {
		eventually(t, "status.ready is 2", func(ctx context.Context) (bool, error) {
			if err := cluster.Get(ctx, key, website); err != nil {
				return false, err
			}
			ready, _, err := unstructured.NestedInt64(website.Object, "status", "ready")
			return ready == 2, err
		})
	})

	t.Run("its Service answers", func(t *testing.T) {
		if os.Getenv("FAIRLEAD_CLUSTER") == "" {
			t.Skip("not started by fairlead run")
		}
		eventually(t, "an answer of a pod", func(ctx context.Context) (bool, error) {
			words := []string{"exec", "node/node-1", "--", "fairlead", "request", "http://home.default.svc.cluster.local"}
			out, err := exec.CommandContext(ctx, "fairlead", words...).CombinedOutput()
			t.Logf("%s", out)
			return err == nil && strings.HasPrefix(string(out), "home-"), nil
		})
	})

	t.Run("what it owns goes with it", func(t *testing.T) {
		if err := cluster.Delete(t.Context(), website, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the Deployment is gone", func(ctx context.Context) (bool, error) {
			return apierrors.IsNotFound(cluster.Get(ctx, key, &appsv1.Deployment{})), nil
		})
	})
}
