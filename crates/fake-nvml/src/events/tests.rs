use octavo_machine::{Event, EventKind, GpuState, State};

use super::{EventSet, TypeBit, supported_types};

const ALL: u64 = 0xff;

fn event(gpu: u32, kind: EventKind, data: u64) -> Event {
    Event { gpu, kind, data, gpu_instance: None, compute_instance: None }
}

fn state(events: &[Event]) -> State {
    State { events: events.to_vec(), ..State::default() }
}

#[test]
fn a_burst_is_reported_once_and_in_order() {
    let set = EventSet::new(0);
    set.register(0, ALL, 0, 0);
    set.register(1, ALL, 0, 0);
    let events: Vec<_> = (0..10).map(|i| event(i % 2, EventKind::Xid, i.into())).collect();
    let reported: Vec<_> =
        std::iter::from_fn(|| set.take(&state(&events))).map(|e| e.data).collect();
    assert_eq!(reported, (0..10).collect::<Vec<_>>());
    assert_eq!(set.take(&state(&events)), None);
}

#[test]
fn earlier_events_are_not_reported() {
    let set = EventSet::new(1);
    let mut events = vec![event(0, EventKind::Xid, 13), event(0, EventKind::Xid, 31)];
    set.register(0, ALL, 2, 0);
    assert_eq!(set.take(&state(&events)), None);
    events.push(event(0, EventKind::Xid, 79));
    assert_eq!(set.take(&state(&events)).unwrap().data, 79);
}

#[test]
fn only_registered_gpus_and_types_are_reported() {
    let set = EventSet::new(0);
    set.register(1, EventKind::DoubleBitEcc.bit(), 0, 0);
    let events = [
        event(0, EventKind::DoubleBitEcc, 1),
        event(1, EventKind::Xid, 2),
        event(1, EventKind::DoubleBitEcc, 3),
    ];
    assert_eq!(set.take(&state(&events)).unwrap().data, 3);
    assert_eq!(set.take(&state(&events)), None);
}

#[test]
fn an_emptied_list_does_not_silence_the_set() {
    let set = EventSet::new(3);
    set.register(0, ALL, 3, 0);
    assert_eq!(set.take(&state(&[])), None);
    assert_eq!(set.take(&state(&[event(0, EventKind::Xid, 48)])).unwrap().data, 48);
}

#[test]
fn a_change_of_mig_mode_ends_a_registration() {
    let set = EventSet::new(0);
    set.register(0, ALL, 0, 0);
    let mut state = state(&[event(0, EventKind::Xid, 31)]);
    assert_eq!(set.take(&state).unwrap().data, 31);
    state.gpus.insert(0, GpuState { mig_mode_changes: 1, ..GpuState::default() });
    state.events.push(event(0, EventKind::Xid, 48));
    assert_eq!(set.take(&state), None);
    set.register(0, ALL, 2, 1);
    state.events.push(event(0, EventKind::Xid, 79));
    assert_eq!(set.take(&state).unwrap().data, 79);
}

#[test]
fn only_gpus_with_ecc_report_memory_errors() {
    assert_eq!(supported_types(false), EventKind::Xid.bit());
    assert_eq!(supported_types(true), 0b1011);
}
