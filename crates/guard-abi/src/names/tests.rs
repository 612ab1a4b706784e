use proptest::prelude::*;

use super::*;

#[test]
fn endings_of_versions_and_streams_are_taken_off() {
    for (name, expected) in [
        ("cuMemAlloc", "cuMemAlloc"),
        ("cuMemAlloc_v2", "cuMemAlloc"),
        ("cuMemAlloc_v12", "cuMemAlloc"),
        ("cuLaunchKernel_ptsz", "cuLaunchKernel"),
        ("cuMemcpyHtoD_v2_ptds", "cuMemcpyHtoD"),
        ("cuThing_v", "cuThing_v"),
        ("cuThing2", "cuThing2"),
        ("cuThing_ptsz_v2", "cuThing_ptsz"),
        ("", ""),
        ("_v2", ""),
        ("7", "7"),
    ] {
        assert_eq!(base(name.as_bytes()), expected.as_bytes(), "{name}");
    }
}

#[test]
fn a_new_way_to_allocate_or_launch_is_suspicious() {
    for name in [
        "cuMemAlloc_v3",
        "cuMemAllocTiered",
        "cuMemAllocTiered_v2_ptsz",
        "cuDeviceMalloc",
        "cuGraphAddMemallocNode",
        "cuLaunchKernelExC",
        "cuLaunchCluster_ptsz",
        "cuGraphRelaunch",
        "cuMemCreate_v2",
        "cuSparseArrayCreate",
        "cuArray3DCreate_v3",
        "cuMemPoolCreate_v2",
        "cuCtxCreate_v5",
        "cuDeviceBufferCreate",
        "cuMulticastBindMem_v3",
        "cuLogicalEndpointBindMem",
        "cuLogicalEndpointBindAddr_v2",
    ] {
        assert!(is_suspicious(name.as_bytes()), "{name}");
    }
}

#[test]
fn what_cuda_has_to_allocate_and_launch_is_found_in_every_version() {
    for name in KNOWN {
        for ending in ["", "_v2", "_ptsz", "_v3_ptsz", "_v2_ptds"] {
            let name = std::format!("{name}{ending}");
            assert!(is_suspicious(name.as_bytes()), "{name}");
        }
        assert_eq!(base(name.as_bytes()), name.as_bytes(), "stands without endings");
    }
}

#[test]
fn what_only_looks_like_it_is_not_suspicious_in_any_version() {
    for name in HARMLESS {
        for ending in ["", "_v2", "_ptsz"] {
            let name = std::format!("{name}{ending}");
            assert!(!is_suspicious(name.as_bytes()), "{name}");
        }
        // It would be suspicious without the list: no entry is superfluous.
        assert!(
            SUSPICIOUS_WORDS.iter().any(|word| contains_ignoring_case(name.as_bytes(), word)),
            "{name}"
        );
    }
}

#[test]
fn what_neither_allocates_nor_launches_is_not_suspicious() {
    for name in [
        "",
        "cu",
        "cuInit",
        "cuMemFree_v2",
        "cuMemGetInfo_v2",
        "cuMulticastCreate",
        "cuMulticastUnbind",
        "cuLogicalEndpointUnbind",
        "cuStreamCreate",
        "cuEventCreate",
        "cuGraphCreate",
        "cuLinkCreate_v2",
        "cuTexObjectCreate",
        "cuUserObjectCreate",
        "cuGreenCtxStreamCreate",
        "cuMemAddressReserve",
        "cuMemcpyDtoHAsync_v2_ptsz",
        "cudbgMainAlloc",
        "cudaMalloc",
        "nvmlDeviceGetMemoryInfo",
        "nvmlGpuInstanceCreateComputeInstance",
        "malloc",
    ] {
        assert!(!is_suspicious(name.as_bytes()), "{name}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_name(name in prop::collection::vec(any::<u8>(), 0..64)) {
        let base = base(&name);
        prop_assert!(name.starts_with(base));
        prop_assert_eq!(super::base(base).len() <= base.len(), true);
        let _ = is_suspicious(&name);
    }

    #[test]
    fn a_word_is_found_wherever_it_stands(before in "[A-Z][A-Za-z]{0,8}", after in "[A-Za-z]{0,8}") {
        let name = std::format!("cu{before}Alloc{after}X");
        prop_assert!(is_suspicious(name.as_bytes()), "{}", name);
    }
}
