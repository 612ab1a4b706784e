package main

import (
	_ "unsafe" // for go:linkname

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"
)

// specialClaim is the claim for those of the pod's extended resources that the
// node has only through DRA. A message says why the pod does not fit.
//
// It takes the decisions of the scheduler plugin's filterExtendedResources,
// and one of the plugin NodeResourcesFit: where no resource has a class, a
// resource without a class must be on the node.
func (s *cluster) specialClaim(node *v1.Node, there *nodeAnswer) (*resourceapi.ResourceClaim, string) {
	resolver := extendedresourcecache.NewExtendedResourceCache(klog.Logger{})
	for _, class := range s.DeviceClasses {
		resolver.OnAdd(class, true)
	}
	info := framework.NewNodeInfo()
	info.SetNode(node)
	asked := framework.NewResource(resourcehelper.PodRequests(s.Pod, resourcehelper.PodResourcesOptions{})).ScalarResources
	throughDRA := map[v1.ResourceName]int64{}
	for name, amount := range asked {
		if amount == 0 || !schedutil.IsDRAExtendedResourceName(name) {
			continue
		}
		allocatable, known := info.GetAllocatable().GetScalarResources()[name]
		if resolver.GetDeviceClass(name) != nil && allocatable == 0 {
			throughDRA[name] = amount
		} else if !known {
			return nil, "cannot fit resource"
		}
	}
	if len(throughDRA) == 0 {
		return nil, ""
	}
	there.ExtendedRequests, there.ExtendedMappings = createRequestsAndMappings(s.Pod, throughDRA, klog.Logger{}, resolver)
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Pod.Namespace, Name: "<extended-resources>"},
		Spec: resourceapi.ResourceClaimSpec{
			Devices: resourceapi.DeviceClaim{Requests: there.ExtendedRequests},
		},
	}, ""
}

// createRequestsAndMappings is the scheduler's own way to turn extended
// resources into device requests.
//
//go:linkname createRequestsAndMappings k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources.createRequestsAndMappings
func createRequestsAndMappings(pod *v1.Pod, extendedResources map[v1.ResourceName]int64, logger klog.Logger, deviceClassMapping fwk.DeviceClassResolver) ([]resourceapi.DeviceRequest, []v1.ContainerExtendedResourceRequest)
