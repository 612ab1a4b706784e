// Command oracles answers questions with Kubernetes' own code. Tests compare
// Octavo's allocator and predicates with its answers; nothing else runs it.
package main

import (
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
)

func main() {
	root := &cobra.Command{
		Use:   "oracles",
		Short: "Answer questions with Kubernetes' own code",
	}
	root.AddCommand(newDRAOracleCommand(), newFilterOracleCommand())
	os.Exit(cli.Run(root))
}
