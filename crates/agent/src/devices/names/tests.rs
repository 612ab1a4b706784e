use super::*;
use crate::testing::mig;

#[test]
fn a_mig_device_is_named_as_by_nvidia_s_driver() {
    let profiles = mig::profiles();
    let named = |name: &str, start: u32, minor: u32| {
        let profile = profiles.iter().find(|profile| profile.name == name).unwrap();
        let placement = profile.placements.iter().find(|found| found.start == start).unwrap();
        mig_name(minor, profile, *placement)
    };
    assert_eq!(named("1g.10gb", 6, 0), "gpu-0-mig-1g10gb-19-6");
    assert_eq!(named("1g.10gb+me", 0, 3), "gpu-3-mig-1g10gb-me-20-0");
    assert_eq!(named("7g.80gb", 0, 12), "gpu-12-mig-7g80gb-0-0");
}

#[test]
fn what_is_named_can_be_read_back() {
    for profile in mig::profiles() {
        for placement in &profile.placements {
            let read = parse_mig_name(&mig_name(5, &profile, *placement)).unwrap();
            assert_eq!((read.minor, read.profile_id, read.start), (5, profile.id, placement.start));
            assert_eq!(read.profile, label(&profile.name));
        }
    }
}

#[test]
fn profiles_with_attributes_are_labels() {
    assert_eq!(label("1g.24gb+me.all"), "1g24gb-meall");
    assert_eq!(label("1g.24gb-me"), "1g24gb-me");
    assert_eq!(label("4g.96gb+gfx"), "4g96gb-gfx");
    let read = parse_mig_name("gpu-0-mig-1g24gb-me-21-2").unwrap();
    assert_eq!((read.profile.as_str(), read.profile_id, read.start), ("1g24gb-me", 21, 2));
}

#[test]
fn other_names_are_no_mig_devices() {
    for name in [
        "gpu-0",
        "gpu-0-mig-",
        "gpu-0-mig-19-0",
        "gpu-0-mig--19-0",
        "gpu-x-mig-1g10gb-19-0",
        "gpu-0-mig-1g10gb-19-x",
        "gpu-0-mig-1g10gb-019-0",
        "gpu-0-mig-1g10gb-+19-0",
        "mig-1g10gb-19-0",
        "gpu-vfio-0",
    ] {
        assert_eq!(parse_mig_name(name), None, "{name}");
    }
}
