package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
	resourcedefaults "k8s.io/kubernetes/pkg/apis/resource/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	kjson "sigs.k8s.io/json"
)

// searchLimit ends a search that explodes. kube-scheduler's own limit is 10 s.
const searchLimit = 5 * time.Second

// newDRAOracleCommand answers questions about dynamic resource allocation with
// kube-scheduler's own code. The tests of Octavo's allocator compare with it.
func newDRAOracleCommand() *cobra.Command {
	return &cobra.Command{
		Use:           "dra-oracle",
		Short:         "Answer what kube-scheduler would allocate",
		Long:          "Reads questions from standard input and answers on standard output, one JSON object a line.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return newOracle().serve(os.Stdin, os.Stdout)
		},
	}
}

// question is one line of input. Objects are as an API server returns them.
// Where an API server sets defaults, they may be left out.
type question struct {
	// ID is repeated in the answer.
	ID string `json:"id"`
	// Select asks which devices an expression selects.
	Select *selectQuestion `json:"select,omitempty"`
	// Admit asks whether an API server would accept the cluster's objects.
	Admit bool `json:"admit,omitempty"`
	// Given has allocations by node that are to be checked against the rules, one
	// for each claim that needs an allocation.
	Given map[string][]resourceapi.AllocationResult `json:"given,omitempty"`
	cluster
}

// cluster holds nodes, slices and classes, and the claims of one pod.
type cluster struct {
	Nodes         []*v1.Node                   `json:"nodes,omitempty"`
	Slices        []*resourceapi.ResourceSlice `json:"slices,omitempty"`
	DeviceClasses []*resourceapi.DeviceClass   `json:"deviceClasses,omitempty"`
	// Claims are the pod's claims, in the pod's order.
	Claims []*resourceapi.ResourceClaim `json:"claims,omitempty"`
	// OtherClaims are the cluster's other allocated claims.
	OtherClaims []*resourceapi.ResourceClaim `json:"otherClaims,omitempty"`
	// Pod is needed only where the pod asks for extended resources.
	Pod *v1.Pod `json:"pod,omitempty"`
}

type selectQuestion struct {
	Expression string               `json:"expression"`
	Driver     string               `json:"driver"`
	Devices    []resourceapi.Device `json:"devices"`
}

// answer is one line of output.
type answer struct {
	ID string `json:"id"`
	// Nodes holds one answer for each node, in the question's order.
	Nodes []nodeAnswer `json:"nodes,omitempty"`
	// Selected says for each device "true", "false" or "error: ...".
	Selected []string `json:"selected,omitempty"`
	// CompileError says why an expression does not compile.
	CompileError string `json:"compileError,omitempty"`
	// Refusals are the reasons for which an API server would refuse the objects.
	Refusals []string `json:"refusals,omitempty"`
}

// nodeAnswer is the result for the pod's claims on one node.
type nodeAnswer struct {
	Node string `json:"node"`
	// Verdict is "feasible", "infeasible" (another node may be feasible), "error"
	// (the scheduler stops), "timeout" or "panic".
	Verdict string `json:"verdict"`
	// Message is the reason, where upstream gives one.
	Message string `json:"message,omitempty"`
	// Allocations has one entry for each claim that needed an allocation.
	Allocations []resourceapi.AllocationResult `json:"allocations,omitempty"`
	// ExtendedRequests are those of the special claim for extended resources.
	ExtendedRequests []resourceapi.DeviceRequest `json:"extendedRequests,omitempty"`
	// ExtendedMappings say which container uses which of these requests.
	ExtendedMappings []v1.ContainerExtendedResourceRequest `json:"extendedMappings,omitempty"`
	// Checked is "ok" or the reason for which the given allocations are invalid.
	Checked string `json:"checked,omitempty"`
}

type oracle struct {
	features structured.Features
	cel      *cel.Cache
}

func newOracle() *oracle {
	// The feature gates have the pinned version's defaults.
	gates := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	return &oracle{
		features: dynamicresources.AllocatorFeatures(gates),
		cel: cel.NewCache(4096, cel.Features{
			EnableConsumableCapacity: gates.EnableDRAConsumableCapacity,
			EnableListTypeAttributes: gates.EnableDRAListTypeAttributes,
		}),
	}
}

func (o *oracle) serve(in io.Reader, out io.Writer) error {
	reader := bufio.NewReaderSize(in, 1<<20)
	writer := bufio.NewWriterSize(out, 1<<20)
	encoder := json.NewEncoder(writer)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a question: %w", err)
		}
		var asked question
		// Strict, so that a field that Kubernetes does not know is reported.
		strict, err := kjson.UnmarshalStrict(line, &asked)
		if err == nil {
			err = errors.Join(strict...)
		}
		if err != nil {
			return fmt.Errorf("question %s: %w", line, err)
		}
		answered, err := o.answer(&asked)
		if err != nil {
			return fmt.Errorf("question %s: %w", asked.ID, err)
		}
		if err := encoder.Encode(answered); err != nil {
			return fmt.Errorf("write the answer to %s: %w", asked.ID, err)
		}
		if err := writer.Flush(); err != nil {
			return fmt.Errorf("write the answer to %s: %w", asked.ID, err)
		}
	}
}

func (o *oracle) answer(asked *question) (*answer, error) {
	answered := &answer{ID: asked.ID}
	if asked.Select != nil {
		o.selected(asked.Select, answered)
		return answered, nil
	}
	asked.setDefaults()
	if asked.Admit {
		refusals, err := asked.refusals()
		answered.Refusals = refusals
		return answered, err
	}
	allocator, err := o.allocator(&asked.cluster)
	if err != nil {
		return nil, err
	}
	for _, node := range asked.Nodes {
		there := nodeAnswer{Node: node.Name}
		claims, message := asked.claimsToAllocate(node, &there)
		if message != "" {
			there.Verdict, there.Message = "infeasible", message
		} else {
			there.Allocations, there.Verdict, there.Message = allocate(allocator, node, claims)
		}
		if given, ok := asked.Given[node.Name]; ok {
			there.Checked = o.check(&asked.cluster, node, claims, given)
		}
		answered.Nodes = append(answered.Nodes, there)
	}
	return answered, nil
}

// setDefaults completes objects as an API server does.
func (s *cluster) setDefaults() {
	for _, claims := range [][]*resourceapi.ResourceClaim{s.OtherClaims, s.Claims} {
		for _, claim := range claims {
			resourcedefaults.SetObjectDefaults_ResourceClaim(claim)
			canonicalize(claim)
		}
	}
	for _, slice := range s.Slices {
		resourcedefaults.SetObjectDefaults_ResourceSlice(slice)
	}
}

// canonicalize writes requested amounts as an API server returns them: 2.5Gi is
// 2560Mi. The allocator's arithmetic depends on this form.
func canonicalize(claim *resourceapi.ResourceClaim) {
	amounts := func(capacity *resourceapi.CapacityRequirements) {
		if capacity == nil {
			return
		}
		for name, amount := range capacity.Requests {
			capacity.Requests[name] = resource.MustParse(amount.String())
		}
	}
	for i := range claim.Spec.Devices.Requests {
		request := &claim.Spec.Devices.Requests[i]
		if request.Exactly != nil {
			amounts(request.Exactly.Capacity)
		}
		for j := range request.FirstAvailable {
			amounts(request.FirstAvailable[j].Capacity)
		}
	}
}

// allocator is kube-scheduler's allocator for this cluster.
func (o *oracle) allocator(s *cluster) (structured.Allocator, error) {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claims := range [][]*resourceapi.ResourceClaim{s.OtherClaims, s.Claims} {
		for _, claim := range claims {
			foreachAllocatedDevice(claim,
				func(id structured.DeviceID) { state.AllocatedDevices.Insert(id) },
				o.features.ConsumableCapacity,
				func(id structured.SharedDeviceID) { state.AllocatedSharedDeviceIDs.Insert(id) },
				func(taken structured.DeviceConsumedCapacity) { state.AggregatedCapacity.Insert(taken) },
			)
		}
	}
	return structured.NewAllocator(context.Background(), o.features, state, classes(s.DeviceClasses), s.Slices, o.cel)
}

// foreachAllocatedDevice is the scheduler's own way to read an allocation.
//
//go:linkname foreachAllocatedDevice k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources.foreachAllocatedDevice
func foreachAllocatedDevice(claim *resourceapi.ResourceClaim,
	dedicated func(structured.DeviceID),
	enabledConsumableCapacity bool,
	shared func(structured.SharedDeviceID),
	consumed func(structured.DeviceConsumedCapacity))

// claimsToAllocate are the pod's claims without an allocation, and the special
// claim if the pod asks for extended resources. A message gives the reason why
// no allocation could put the pod on the node.
func (s *cluster) claimsToAllocate(node *v1.Node, there *nodeAnswer) ([]*resourceapi.ResourceClaim, string) {
	var claims []*resourceapi.ResourceClaim
	for _, claim := range s.Claims {
		allocation := claim.Status.Allocation
		if allocation == nil {
			claims = append(claims, claim)
			continue
		}
		if allocation.NodeSelector == nil {
			continue
		}
		selector, err := nodeaffinity.NewNodeSelector(allocation.NodeSelector)
		if err != nil || !selector.Match(node) {
			return nil, "resourceclaim not available on the node"
		}
	}
	if s.Pod == nil {
		return claims, ""
	}
	special, message := s.specialClaim(node, there)
	if special != nil {
		claims = append(claims, special)
	}
	return claims, message
}

// allocate asks for all claims on one node. It returns allocations, verdict and
// message.
func allocate(allocator structured.Allocator, node *v1.Node, claims []*resourceapi.ResourceClaim) (_ []resourceapi.AllocationResult, verdict, message string) {
	defer func() {
		// Objects that no API server would accept may make the allocator panic.
		if cause := recover(); cause != nil {
			verdict, message = "panic", fmt.Sprint(cause)
		}
	}()
	ctx, cancel := context.WithTimeout(klog.NewContext(context.Background(), klog.Logger{}), searchLimit)
	defer cancel()
	allocations, err := allocator.Allocate(ctx, node, claims)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, "timeout", err.Error()
	case errors.Is(err, structured.ErrFailedAllocationOnNode):
		return nil, "infeasible", err.Error()
	case err != nil:
		return nil, "error", err.Error()
	case len(allocations) != len(claims):
		return nil, "infeasible", ""
	default:
		return allocations, "feasible", ""
	}
}

// selected says which devices an expression selects.
func (o *oracle) selected(asked *selectQuestion, answered *answer) {
	expression := o.cel.GetOrCompile(asked.Expression)
	if expression.Error != nil {
		answered.CompileError = expression.Error.Error()
		return
	}
	for _, device := range asked.Devices {
		matches, _, err := expression.DeviceMatches(context.Background(), cel.Device{
			Driver:                   asked.Driver,
			AllowMultipleAllocations: device.AllowMultipleAllocations,
			Attributes:               device.Attributes,
			Capacity:                 device.Capacity,
		})
		answer := fmt.Sprint(matches)
		if err != nil {
			answer = "error: " + err.Error()
		}
		answered.Selected = append(answered.Selected, answer)
	}
}

// classes is a lister of device classes for the allocator.
type classes []*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	return c, nil
}

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("device class %q not found", name)
}
