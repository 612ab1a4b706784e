use octavo_machine::{Event, EventKind};

use super::{EventSet, TypeBit, supported_types};

const ALL: u64 = 0xff;

fn event(gpu: u32, kind: EventKind, data: u64) -> Event {
    Event { gpu, kind, data, gpu_instance: None, compute_instance: None }
}

#[test]
fn a_burst_is_reported_once_and_in_order() {
    let set = EventSet::new(0);
    set.register(0, ALL, 0);
    set.register(1, ALL, 0);
    let events: Vec<_> = (0..10).map(|i| event(i % 2, EventKind::Xid, i.into())).collect();
    let reported: Vec<_> = std::iter::from_fn(|| set.take(&events)).map(|e| e.data).collect();
    assert_eq!(reported, (0..10).collect::<Vec<_>>());
    assert_eq!(set.take(&events), None);
}

#[test]
fn earlier_events_are_not_reported() {
    let set = EventSet::new(1);
    let mut events = vec![event(0, EventKind::Xid, 13), event(0, EventKind::Xid, 31)];
    set.register(0, ALL, 2);
    assert_eq!(set.take(&events), None);
    events.push(event(0, EventKind::Xid, 79));
    assert_eq!(set.take(&events).unwrap().data, 79);
}

#[test]
fn only_registered_gpus_and_types_are_reported() {
    let set = EventSet::new(0);
    set.register(1, EventKind::DoubleBitEcc.bit(), 0);
    let events = [
        event(0, EventKind::DoubleBitEcc, 1),
        event(1, EventKind::Xid, 2),
        event(1, EventKind::DoubleBitEcc, 3),
    ];
    assert_eq!(set.take(&events).unwrap().data, 3);
    assert_eq!(set.take(&events), None);
}

#[test]
fn an_emptied_list_does_not_silence_the_set() {
    let set = EventSet::new(3);
    set.register(0, ALL, 3);
    assert_eq!(set.take(&[]), None);
    assert_eq!(set.take(&[event(0, EventKind::Xid, 48)]).unwrap().data, 48);
}

#[test]
fn only_gpus_with_ecc_report_memory_errors() {
    assert_eq!(supported_types(false), EventKind::Xid.bit());
    assert_eq!(supported_types(true), 0b1011);
}
