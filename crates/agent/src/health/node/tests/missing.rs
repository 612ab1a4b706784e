//! GPUs that the driver does not show.

use octavo_gpu::UnreadableGpu;

use super::*;

/// The record of an agent that had these GPUs, of which one may have had a fault.
fn record(
    folder: &tempfile::TempDir,
    gpus: u32,
    faulty: Option<u32>,
) -> impl Fn() -> Option<RecordFile> {
    let path = folder.path().join("health.json");
    let file = move || Some(RecordFile::new(path.clone()));
    let mut before = NodeHealth::observer(file(), BOOT);
    before.serve(Periods::default().begin(), Some(&testing::inventory(gpus)), 0);
    for index in 0..gpus {
        before.answer(&uuid(index), &Ok(well()), 1);
    }
    if let Some(index) = faulty {
        before.xid(&uuid(index), 48, LinkSeverity::Unknown, 1);
    }
    decide(&mut before, 1);
    assert!(before.store());
    file
}

#[test]
fn a_gpu_that_was_taken_out_stays_known_unless_it_was_well() {
    let mut health = node(None, BOOT, 2);
    health.xid(&uuid(0), 48, LinkSeverity::Unknown, 1);
    decide(&mut health, 1);
    let mut gpus = testing::inventory(4).gpus;
    health.set_gpus(&testing::found(&gpus.split_off(2)), 0);
    decide(&mut health, 2);
    assert_eq!(health.record.gpus.keys().collect::<Vec<_>>(), [&uuid(0), &uuid(2), &uuid(3)]);
    health.set_gpus(&testing::inventory(2), 0);
    decide(&mut health, 3);
    assert_eq!((state(&health, 0), state(&health, 1)), ("Fenced", "Healthy"));
    let ids: BTreeSet<_> = health.record.gpus.values().map(|known| known.id).collect();
    assert_eq!(ids.len(), health.record.gpus.len());
}

#[test]
fn a_gpu_out_of_service_that_the_driver_does_not_show_is_lost_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = record(&folder, 2, Some(1));
    let gpus = testing::inventory(2).gpus;

    let mut after = NodeHealth::observer(file(), BOOT);
    after.serve(Periods::default().begin(), Some(&testing::found(&gpus[..1])), 0);
    decide(&mut after, 2);
    let shown = after.devices(&gpus[..1], 2);
    let names: Vec<&str> = shown.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["gpu-0", "gpu-1"]);
    assert_eq!((shown[1].state.as_str(), shown[1].reason.as_deref()), ("Fenced", Some("GpuLost")));
    assert_eq!(shown[1].waits.as_deref(), Some("RemedyByPerson"));
    // Its board was replaced: a person retires what is left of it.
    let words = BTreeMap::from([(uuid(1), (1, Word::Retire))]);
    after.set_orders(Orders { words, ..Orders::default() }, 3);
    decide(&mut after, 3);
    assert_eq!(after.devices(&gpus[..1], 3).len(), 1);
    // A GPU that is there again is well.
    after.set_gpus(&testing::found(&gpus), 0);
    decide(&mut after, 4);
    assert_eq!((after.devices(&gpus, 4).len(), state(&after, 1)), (2, "Healthy"));
}

#[test]
fn a_well_gpu_that_is_lost_while_no_agent_runs_is_fenced_and_one_taken_out_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let file = record(&folder, 3, None);
    let gpus = testing::inventory(3).gpus;
    let shown = |found: &Inventory| {
        let mut after = NodeHealth::observer(file(), BOOT);
        after.serve(Periods::default().begin(), Some(found), 7);
        decide(&mut after, 7);
        let shown = after.devices(&found.gpus, 7);
        let shown = shown.into_iter().map(|device| (device.name, device.state, device.reason));
        shown.collect::<Vec<_>>()
    };
    let lost = |index| UnreadableGpu { index, error: testing::lost() };
    let healthy = |name: &str| (name.to_owned(), "Healthy".to_owned(), None);
    let found = Inventory { unreadable: vec![lost(2)], ..testing::found(&gpus[..2]) };
    let fenced = ("gpu-2".to_owned(), "Fenced".to_owned(), Some("GpuLost".to_owned()));
    assert_eq!(shown(&found), [healthy("gpu-0"), healthy("gpu-1"), fenced]);
    // The other of two may be with another driver, as for a virtual machine.
    let found = Inventory { unreadable: vec![lost(2)], ..testing::found(&gpus[..1]) };
    assert_eq!(shown(&found), [healthy("gpu-0")]);
    assert_eq!(shown(&testing::found(&gpus[..1])), [healthy("gpu-0")]);
}

#[test]
fn a_gpu_that_cannot_be_read_for_a_moment_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let file = record(&folder, 2, Some(1));
    let gpus = testing::inventory(2).gpus;
    let mut after = NodeHealth::observer(file(), BOOT);
    let (call, message) = ("nvmlDeviceGetHandleByIndex_v2", "Unknown Error".to_owned());
    let error = DriverError::Failed { call, code: 999, message };
    let unreadable = vec![UnreadableGpu { index: 1, error }];
    after.serve(
        Periods::default().begin(),
        Some(&Inventory { unreadable, ..testing::found(&gpus[..1]) }),
        2,
    );
    decide(&mut after, 2);
    let shown = after.devices(&gpus[..1], 2);
    let shown: Vec<_> = shown.iter().map(|device| (&*device.name, &*device.state)).collect();
    assert_eq!(shown, [("gpu-0", "Healthy"), ("gpu-1", "Fenced")]);
    assert_eq!(reason(&after, 1), Some(Reason::Xid(48)));
}
