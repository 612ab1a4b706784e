package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/resource"
	resourceconversion "k8s.io/kubernetes/pkg/apis/resource/v1"
	"k8s.io/kubernetes/pkg/apis/resource/validation"
)

// refusals are the reasons for which an API server would refuse the cluster's
// slices, classes and claims, each with the object's name.
func (s *cluster) refusals() ([]string, error) {
	var refusals []string
	refuse := func(kind, name string, problems field.ErrorList) {
		for _, problem := range problems {
			refusals = append(refusals, fmt.Sprintf("%s %s: %v", kind, name, problem))
		}
	}
	for _, slice := range s.Slices {
		var internal resource.ResourceSlice
		if err := resourceconversion.Convert_v1_ResourceSlice_To_resource_ResourceSlice(slice, &internal, nil); err != nil {
			return nil, err
		}
		refuse("slice", slice.Name, validation.ValidateResourceSlice(&internal))
	}
	for _, class := range s.DeviceClasses {
		var internal resource.DeviceClass
		if err := resourceconversion.Convert_v1_DeviceClass_To_resource_DeviceClass(class, &internal, nil); err != nil {
			return nil, err
		}
		refuse("class", class.Name, validation.ValidateDeviceClass(&internal))
	}
	for _, claim := range append(s.Claims, s.OtherClaims...) {
		var internal resource.ResourceClaim
		if err := resourceconversion.Convert_v1_ResourceClaim_To_resource_ResourceClaim(claim, &internal, nil); err != nil {
			return nil, err
		}
		refuse("claim", claim.Name, validation.ValidateResourceClaim(&internal))
		if internal.Status.Allocation == nil {
			continue
		}
		before := internal.DeepCopy()
		before.Status = resource.ResourceClaimStatus{}
		internal.ResourceVersion, before.ResourceVersion = "1", "1"
		refuse("status of claim", claim.Name, validation.ValidateResourceClaimStatusUpdate(&internal, before))
	}
	return refusals, nil
}
