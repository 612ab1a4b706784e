// Command kubelet is the kubelet of the test bed's real nodes, with its
// upstream flags. It is a program of its own so that a lab without real nodes
// does not compile it. kubelet-1.34.mod and kubelet-1.35.mod make older ones of it.
package main

import (
	"context"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	os.Exit(cli.Run(kubelet.NewKubeletCommand(context.Background())))
}
