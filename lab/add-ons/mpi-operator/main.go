// Command mpi-operator is the controller of MPIJobs as a process of the test
// bed. It starts the operator's own controller without the operator's own
// program: that one listens on port 8080 of every address and waits for a
// lease, so two labs of one machine could not have it.
package main

import (
	"context"
	"flag"
	"os/signal"
	"syscall"

	"github.com/kubeflow/mpi-operator/cmd/mpi-operator/app/options"
	clientset "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned"
	mpiinformers "github.com/kubeflow/mpi-operator/pkg/client/informers/externalversions"
	"github.com/kubeflow/mpi-operator/pkg/controller"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

func main() {
	klog.InitFlags(nil)
	options := options.NewServerOption()
	options.AddFlags(flag.CommandLine)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, options); err != nil {
		klog.Fatal(err)
	}
}

func run(ctx context.Context, options *options.ServerOption) error {
	config, err := clientcmd.BuildConfigFromFlags("", options.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = float32(options.QPS), options.Burst
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	jobs, err := clientset.NewForConfig(config)
	if err != nil {
		return err
	}
	objects := informers.NewSharedInformerFactory(client, 0)
	jobObjects := mpiinformers.NewSharedInformerFactory(jobs, 0)
	controller, err := controller.NewMPIJobController(
		ctx, client, jobs, nil, nil,
		objects.Core().V1().ConfigMaps(),
		objects.Core().V1().Secrets(),
		objects.Core().V1().Services(),
		objects.Batch().V1().Jobs(),
		objects.Core().V1().Pods(),
		objects.Scheduling().V1().PriorityClasses(),
		jobObjects.Kubeflow().V2beta1().MPIJobs(),
		options)
	if err != nil {
		return err
	}
	objects.Start(ctx.Done())
	jobObjects.Start(ctx.Done())
	return controller.Run(options.Threadiness, ctx.Done())
}
