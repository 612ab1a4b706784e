// Command control-plane is the lab's Kubernetes: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler and kubectl in one binary. Each is a
// subcommand with its upstream name and its upstream flags.
//
// It exists for the lab and for tests only; no user's cluster runs it.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// components maps a subcommand to the constructor of its upstream command. Only
// the chosen constructor runs, because each registers global flags.
var components = map[string]func() *cobra.Command{
	"etcd":                    newEtcdCommand,
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
}

func main() {
	// A link named after a component runs it, so that a folder of links can be
	// used as KUBEBUILDER_ASSETS.
	name := filepath.Base(os.Args[0])
	if _, ok := components[name]; !ok {
		if len(os.Args) < 2 {
			usage()
		}
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	component, ok := components[name]
	if !ok {
		usage()
	}
	os.Args[0] = name
	os.Exit(cli.Run(component()))
}

func usage() {
	names := make([]string, 0, len(components))
	for name := range components {
		names = append(names, name)
	}
	sort.Strings(names)
	fmt.Fprintf(os.Stderr, "usage: control-plane COMPONENT [FLAGS]\ncomponents: %v\n", names)
	os.Exit(2)
}
