package main

import (
	"fmt"
	"sort"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
)

// pinDomain is the domain of the attributes that check adds to devices.
const pinDomain = "pin.octavo.dev"

// check says whether allocations obey all rules, by upstream's own allocator.
// Every request with a count may choose only among its given devices, and every
// list of alternatives has only the given one. What the allocator then finds
// must be what was given. Requests for all devices are not changed.
func (o *oracle) check(s *cluster, node *v1.Node, claims []*resourceapi.ResourceClaim, given []resourceapi.AllocationResult) string {
	if len(given) != len(claims) {
		return fmt.Sprintf("%d allocations for %d claims", len(given), len(claims))
	}
	pinned := *s
	pinned.Slices = make([]*resourceapi.ResourceSlice, len(s.Slices))
	for i, slice := range s.Slices {
		pinned.Slices[i] = slice.DeepCopy()
	}
	pinnedClaims := make([]*resourceapi.ResourceClaim, len(claims))
	for i, claim := range claims {
		pinnedClaims[i] = claim.DeepCopy()
		for j := range claim.Spec.Devices.Requests {
			request := &pinnedClaims[i].Spec.Devices.Requests[j]
			if complaint := pinned.pin(request, fmt.Sprintf("c%dr%d", i, j), given[i].Devices.Results); complaint != "" {
				return fmt.Sprintf("claim %s, request %s: %s", claim.Name, request.Name, complaint)
			}
		}
	}
	allocator, err := o.allocator(&pinned)
	if err != nil {
		return err.Error()
	}
	found, verdict, message := allocate(allocator, node, pinnedClaims)
	if verdict != "feasible" {
		return strings.TrimSpace("the rules forbid it: " + verdict + " " + message)
	}
	for i := range found {
		if complaint := compare(&found[i], &given[i]); complaint != "" {
			return fmt.Sprintf("claim %s: %s", claims[i].Name, complaint)
		}
	}
	return "ok"
}

// pin restricts a request to its given devices.
func (s *cluster) pin(request *resourceapi.DeviceRequest, mark string, given []resourceapi.DeviceRequestAllocationResult) string {
	var mine []resourceapi.DeviceRequestAllocationResult
	names := map[string]bool{}
	for _, result := range given {
		if base, _, _ := strings.Cut(result.Request, "/"); base == request.Name {
			mine = append(mine, result)
			names[result.Request] = true
		}
	}
	if len(names) != 1 {
		return fmt.Sprintf("has results under %d names", len(names))
	}
	var class *string
	var mode resourceapi.DeviceAllocationMode
	if request.Exactly != nil {
		if mine[0].Request != request.Name {
			return "has results of an alternative"
		}
		class, mode = &request.Exactly.DeviceClassName, request.Exactly.AllocationMode
	} else {
		for _, alternative := range request.FirstAvailable {
			if mine[0].Request == request.Name+"/"+alternative.Name {
				request.FirstAvailable = []resourceapi.DeviceSubRequest{alternative}
				class, mode = &request.FirstAvailable[0].DeviceClassName, alternative.AllocationMode
				break
			}
		}
		if class == nil {
			return "has results of no alternative of its own"
		}
	}
	if mode == resourceapi.DeviceAllocationModeAll {
		return ""
	}
	for _, result := range mine {
		if !s.mark(&result, mark) {
			return fmt.Sprintf("no slice has device %s/%s/%s", result.Driver, result.Pool, result.Device)
		}
	}
	// In the class, whose selectors are evaluated first: the request's selectors
	// must not see other devices.
	for _, original := range s.DeviceClasses {
		if original.Name == *class {
			pinned := original.DeepCopy()
			pinned.Name += "--" + mark
			*class = pinned.Name
			pinned.Spec.Selectors = append([]resourceapi.DeviceSelector{{
				CEL: &resourceapi.CELDeviceSelector{
					Expression: fmt.Sprintf("%q in device.attributes[%q]", mark, pinDomain),
				},
			}}, pinned.Spec.Selectors...)
			s.DeviceClasses = append([]*resourceapi.DeviceClass{pinned}, s.DeviceClasses...)
			return ""
		}
	}
	return "is of a class that there is not"
}

// mark adds an attribute to a device, in slices of every generation.
func (s *cluster) mark(result *resourceapi.DeviceRequestAllocationResult, mark string) bool {
	found := false
	for _, slice := range s.Slices {
		if slice.Spec.Driver != result.Driver || slice.Spec.Pool.Name != result.Pool {
			continue
		}
		for i := range slice.Spec.Devices {
			device := &slice.Spec.Devices[i]
			if device.Name != result.Device {
				continue
			}
			found = true
			if device.Attributes == nil {
				device.Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
			}
			device.Attributes[resourceapi.QualifiedName(pinDomain+"/"+mark)] = resourceapi.DeviceAttribute{BoolValue: ptr.To(true)}
		}
	}
	return found
}

// compare says how two allocations differ. It ignores the order of devices, the
// share IDs, and the configuration, which no allocator decides.
func compare(found, given *resourceapi.AllocationResult) string {
	if !equality.Semantic.DeepEqual(found.NodeSelector, given.NodeSelector) {
		return fmt.Sprintf("node selector %v, should be %v", given.NodeSelector, found.NodeSelector)
	}
	expected, got := sorted(found.Devices.Results), sorted(given.Devices.Results)
	if len(expected) != len(got) {
		return fmt.Sprintf("%d devices, should be %d", len(got), len(expected))
	}
	shares := map[string]bool{}
	for i := range got {
		if (got[i].ShareID == nil) != (expected[i].ShareID == nil) {
			return fmt.Sprintf("request %s, device %s: has a share ID: %v", got[i].Request, got[i].Device, got[i].ShareID != nil)
		}
		if got[i].ShareID != nil {
			if shares[string(*got[i].ShareID)] {
				return fmt.Sprintf("share ID %s twice", *got[i].ShareID)
			}
			shares[string(*got[i].ShareID)] = true
		}
		got[i].ShareID, expected[i].ShareID = nil, nil
		if !equality.Semantic.DeepEqual(got[i], expected[i]) {
			return fmt.Sprintf("result %+v, should be %+v", got[i], expected[i])
		}
	}
	return ""
}

func sorted(results []resourceapi.DeviceRequestAllocationResult) []resourceapi.DeviceRequestAllocationResult {
	results = append([]resourceapi.DeviceRequestAllocationResult(nil), results...)
	sort.SliceStable(results, func(i, j int) bool {
		a, b := &results[i], &results[j]
		return a.Request+"|"+a.Driver+"|"+a.Pool+"|"+a.Device < b.Request+"|"+b.Driver+"|"+b.Pool+"|"+b.Device
	})
	return results
}
