// Command cdi-devices reads CDI specs with containerd's own library and prints
// what each offers, one JSON object a line. Tests compare it with what the
// agent meant to write.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// offer is what a spec offers: devices are named vendor/class=device.
type offer struct {
	Kind    string   `json:"kind"`
	Devices []string `json:"devices"`
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: cdi-devices SPEC...")
		os.Exit(2)
	}
	for _, path := range os.Args[1:] {
		// ReadSpec validates what it reads, as containerd's registry does.
		spec, err := cdi.ReadSpec(path, 0)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(1)
		}
		found := offer{Kind: spec.GetVendor() + "/" + spec.GetClass()}
		for _, device := range spec.Devices {
			found.Devices = append(found.Devices, device.Name)
		}
		if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
