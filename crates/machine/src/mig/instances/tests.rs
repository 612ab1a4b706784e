use super::{MigActivation, MigRefusal, MigState};
use crate::{Mig, MigTable};

fn model(mode_needs_reset: bool) -> Mig {
    Mig { table: "a100-40".to_owned(), mode_needs_reset, enabled: false }
}

fn table() -> MigTable {
    MigTable::find("a100-40").unwrap()
}

/// A GPU in MIG mode with instances of these profiles, placed by the driver.
fn with(profiles: &[&str]) -> MigState {
    let mut mig = MigState { enabled: Some(true), ..MigState::default() };
    for name in profiles {
        create(&mut mig, name, None).unwrap();
    }
    mig
}

fn create(mig: &mut MigState, name: &str, start: Option<u32>) -> Result<u32, MigRefusal> {
    let profile = table().profile_named(name).unwrap().id;
    mig.create(&model(false), &table(), profile, start)
}

#[test]
fn the_driver_places_small_instances_last_and_leaves_room_for_large_ones() {
    let mut mig = with(&["1g.5gb", "2g.10gb", "4g.20gb"]);
    let places: Vec<_> = mig.instances.values().map(|i| (i.profile, i.start)).collect();
    assert_eq!(places, [(5, 0), (14, 4), (19, 6)]);
    assert_eq!(create(&mut mig, "1g.5gb", None), Err(MigRefusal::InsufficientResources));
}

#[test]
fn seven_single_slices_leave_one_memory_slice_that_nothing_fits() {
    let mut mig = with(&["1g.5gb"; 7]);
    for profile in &table().profiles {
        assert_eq!(mig.remaining(&table(), profile), 0, "{}", profile.name);
        let answer = create(&mut mig, profile.name, None);
        assert_eq!(answer, Err(MigRefusal::InsufficientResources), "{}", profile.name);
    }
}

#[test]
fn what_remains_shrinks_with_what_is_made() {
    let table = table();
    let remaining =
        |mig: &MigState, name: &str| mig.remaining(&table, table.profile_named(name).unwrap());
    let mig = with(&["3g.20gb"]);
    assert_eq!(remaining(&mig, "1g.5gb"), 4, "the first half is free");
    assert_eq!(remaining(&mig, "2g.10gb"), 2);
    assert_eq!(remaining(&mig, "4g.20gb"), 1);
    assert_eq!(remaining(&mig, "7g.40gb"), 0);
    let mig = with(&["1g.5gb+me"]);
    assert_eq!(remaining(&mig, "1g.5gb+me"), 0);
    assert_eq!(remaining(&mig, "1g.5gb"), 6);
}

#[test]
fn one_instance_has_the_media_engines_of_a_small_gpu_whatever_its_size() {
    let table = MigTable::find("a30-24").unwrap();
    let model = Mig { table: "a30-24".to_owned(), mode_needs_reset: true, enabled: true };
    let mut mig = MigState::default();
    let id = |name: &str| table.profile_named(name).unwrap().id;
    mig.create(&model, &table, id("2g.12gb+me"), None).unwrap();
    let second = mig.create(&model, &table, id("1g.6gb+me"), Some(0));
    assert_eq!(second, Err(MigRefusal::InsufficientResources));
    mig.create(&model, &table, id("1g.6gb"), Some(0)).unwrap();
}

#[test]
fn with_the_mode_off_nothing_is_made() {
    let answer = create(&mut MigState::default(), "1g.5gb", None);
    assert_eq!(answer, Err(MigRefusal::NotSupported));
}

#[test]
fn a_gpu_instance_with_something_in_it_stays_and_so_does_what_is_used() {
    let mut mig = with(&["3g.20gb"]);
    let (table, id) = (table(), 2);
    assert_eq!(mig.create_compute(&table, id, 0, None), Ok(0));
    assert_eq!(mig.create_compute(&table, id, 2, None), Err(MigRefusal::InsufficientResources));
    assert_eq!(mig.create_compute(&table, id, 0, Some(0)), Err(MigRefusal::InsufficientResources));
    assert_eq!(mig.create_compute(&table, id, 0, Some(2)), Ok(1));
    assert_eq!(mig.create_compute(&table, id, 4, None), Err(MigRefusal::InvalidArgument));
    assert_eq!(mig.devices().collect::<Vec<_>>(), [(2, 0), (2, 1)]);
    assert_eq!(mig.destroy(id), Err(MigRefusal::InUse));
    let inner = &mut mig.instances.get_mut(&id).unwrap().compute_instances;
    inner.get_mut(&1).unwrap().processes = 1;
    assert_eq!(mig.destroy_compute(id, 1), Err(MigRefusal::InUse));
    assert_eq!(mig.destroy_compute(id, 0), Ok(()));
    assert_eq!(mig.destroy_compute(id, 0), Err(MigRefusal::NotFound));
    assert_eq!(mig.create_compute(&table, id, 0, None), Ok(0), "an id that is free again");
    let inner = &mut mig.instances.get_mut(&id).unwrap().compute_instances;
    inner.get_mut(&1).unwrap().processes = 0;
    for compute in [0, 1] {
        mig.destroy_compute(id, compute).unwrap();
    }
    assert_eq!(mig.destroy(id), Ok(()));
    assert_eq!(mig.destroy(id), Err(MigRefusal::NotFound));
}

#[test]
fn a_mode_changes_at_once_or_with_a_reset() {
    let (later, now) = (model(true), model(false));
    let mut mig = MigState::default();
    assert_eq!(mig.set_mode(&now, true, false), Ok(MigActivation::Done));
    assert!(mig.is_enabled(&now) && mig.is_pending(&now));

    let mut mig = MigState::default();
    assert_eq!(mig.set_mode(&later, true, false), Ok(MigActivation::ResetRequired));
    assert!(!mig.is_enabled(&later) && mig.is_pending(&later));
    mig.reset(&later);
    assert!(mig.is_enabled(&later) && mig.is_pending(&later));

    let mut mig = MigState::default();
    assert_eq!(mig.set_mode(&now, true, true), Ok(MigActivation::InUse));
    assert!(!mig.is_enabled(&now) && mig.is_pending(&now));
    assert_eq!(mig.set_mode(&now, false, true), Ok(MigActivation::Done), "a wish taken back");
    assert!(!mig.is_pending(&now));
}

#[test]
fn a_gpu_with_instances_keeps_its_mode() {
    let mut mig = with(&["1g.5gb"]);
    let before = mig.clone();
    assert_eq!(mig.set_mode(&model(false), false, false), Err(MigRefusal::InUse));
    assert_eq!(mig, before);
    assert_eq!(mig.set_mode(&model(false), true, false), Ok(MigActivation::Done));
}

#[test]
fn reboot_ends_instances_and_keeps_a_persistent_mode_only() {
    let mut mig = with(&["1g.5gb"]);
    mig.reboot(&model(false));
    assert_eq!(mig, MigState::default());
    let mut mig = with(&["1g.5gb"]);
    mig.reboot(&model(true));
    assert!(mig.is_enabled(&model(true)) && mig.instances.is_empty());
}
