//! Events in their order.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use octavo_gpu::{Driver, DriverError, EventStream, GpuEvent, GpuEventKind};
use octavo_machine::{Event, EventKind, GpuState, State};

use crate::node::{Node, switched};

/// Longer than any event takes.
const SOON: Duration = Duration::from_secs(20);
/// Time in which no event must arrive.
const MOMENT: Duration = Duration::from_millis(50);

fn xid(gpu: u32, data: u64) -> Event {
    Event { gpu, kind: EventKind::Xid, data, gpu_instance: None, compute_instance: None }
}

fn with(events: Vec<Event>) -> State {
    State { events, ..State::default() }
}

/// The next event, which must arrive.
fn next(stream: &mut dyn EventStream) -> GpuEvent {
    stream.wait(SOON).unwrap().unwrap()
}

#[test]
fn an_xid_arrives_with_the_uuid_of_its_gpu() {
    let node = Node::of(switched());
    let driver = node.open();
    let mut stream = driver.events().unwrap();
    assert_eq!(stream.unmonitored(), [] as [String; 0]);
    assert_eq!(stream.wait(MOMENT), Ok(None), "nothing has happened");
    node.set(&with(vec![xid(2, 79)]));
    assert_eq!(
        next(&mut *stream),
        GpuEvent {
            uuid: Some(node.uuid(2)),
            kind: GpuEventKind::Xid(79),
            gpu_instance: None,
            compute_instance: None,
        }
    );
    assert_eq!(stream.wait(MOMENT), Ok(None), "once is enough");
}

#[test]
fn memory_errors_and_instances_are_reported() {
    let node = Node::of(switched());
    let driver = node.open();
    let mut stream = driver.events().unwrap();
    let on_instance = Event { gpu_instance: Some(3), compute_instance: Some(0), ..xid(0, 31) };
    node.set(&with(vec![
        Event { kind: EventKind::SingleBitEcc, ..xid(1, 0) },
        Event { kind: EventKind::DoubleBitEcc, ..xid(1, 0) },
        on_instance,
    ]));
    assert_eq!(next(&mut *stream).kind, GpuEventKind::SingleBitEcc);
    assert_eq!(next(&mut *stream).kind, GpuEventKind::DoubleBitEcc);
    let event = next(&mut *stream);
    assert_eq!((event.gpu_instance, event.compute_instance), (Some(3), Some(0)));
}

#[test]
fn a_burst_arrives_whole_and_in_order() {
    let node = Node::of(switched());
    let driver = node.open();
    let mut stream = driver.events().unwrap();
    let burst: Vec<Event> = (0..100).map(|n| xid(n % 4, 1000 + u64::from(n))).collect();
    node.set(&with(burst.clone()));
    for event in burst {
        let arrived = next(&mut *stream);
        assert_eq!(arrived.kind, GpuEventKind::Xid(event.data));
        assert_eq!(arrived.uuid, Some(node.uuid(event.gpu as usize)));
    }
    assert_eq!(stream.wait(MOMENT), Ok(None));
}

#[test]
fn a_waiting_thread_is_woken_by_an_event() {
    let node = Node::of(switched());
    let driver = node.open();
    let mut stream = driver.events().unwrap();
    let waiting = thread::spawn(move || (Instant::now(), stream.wait(SOON), Instant::now()));
    node.set(&with(vec![xid(1, 48)]));
    let (start, event, end) = waiting.join().unwrap();
    assert_eq!(event.unwrap().unwrap().uuid, Some(node.uuid(1)));
    assert!(end - start < SOON / 2, "{:?}", end - start);
}

#[test]
fn a_new_stream_does_not_repeat_old_events() {
    let node = Node::of(switched());
    let driver = node.open();
    node.set(&with(vec![xid(0, 13)]));
    let mut stream = driver.events().unwrap();
    node.set(&with(vec![xid(0, 13), xid(3, 31)]));
    assert_eq!(next(&mut *stream).kind, GpuEventKind::Xid(31));
}

#[test]
fn a_gpu_that_cannot_be_registered_does_not_lose_the_others() {
    for call in ["nvmlDeviceRegisterEvents", "nvmlDeviceGetSupportedEventTypes"] {
        let node = Node::of(switched());
        let driver = node.open();
        let failing_calls = BTreeMap::from([(call.to_owned(), 999)]);
        let sick = GpuState { failing_calls, ..GpuState::default() };
        node.set(&State { gpus: BTreeMap::from([(1, sick)]), ..State::default() });
        let mut stream = driver.events().unwrap();
        assert_eq!(stream.unmonitored(), [node.uuid(1)], "{call}");
        node.set(&with(vec![xid(3, 119)]));
        assert_eq!(next(&mut *stream).uuid, Some(node.uuid(3)));
    }
}

#[test]
fn the_event_of_a_gpu_that_is_lost_still_has_its_uuid() {
    let node = Node::of(switched());
    let driver = node.open();
    let mut stream = driver.events().unwrap();
    let lost = GpuState { lost: true, ..GpuState::default() };
    node.set(&State { gpus: BTreeMap::from([(2, lost)]), ..with(vec![xid(2, 79)]) });
    // The driver may report the loss before the event; the stream continues in both cases.
    let deadline = Instant::now() + SOON;
    let event = loop {
        match stream.wait(SOON) {
            Ok(event) => break event.unwrap(),
            Err(error) => assert!(matches!(error, DriverError::GpuLost { .. }), "{error:?}"),
        }
        assert!(Instant::now() < deadline, "no event");
    };
    assert_eq!((event.uuid, event.kind), (Some(node.uuid(2)), GpuEventKind::Xid(79)));
}

#[test]
fn an_error_of_a_wait_does_not_end_the_stream() {
    let node = Node::of(switched());
    let driver = node.open();
    let mut stream = driver.events().unwrap();
    for code in [15, 19, 999] {
        let failing_calls = BTreeMap::from([("nvmlEventSetWait_v2".to_owned(), code)]);
        node.set(&State { failing_calls, ..State::default() });
        let error = stream.wait(SOON).unwrap_err();
        assert!(error.to_string().starts_with("nvmlEventSetWait_v2"), "{error}");
    }
    node.set(&with(vec![xid(0, 63)]));
    assert_eq!(next(&mut *stream).kind, GpuEventKind::Xid(63));
}

#[test]
fn a_stream_outlives_the_driver_that_made_it() {
    let node = Node::of(switched());
    let mut stream = node.open().events().unwrap();
    node.set(&with(vec![xid(0, 94)]));
    assert_eq!(next(&mut *stream).uuid, Some(node.uuid(0)));
}

#[test]
fn an_event_set_that_cannot_be_made_is_an_error() {
    let node = Node::of(switched());
    let driver = node.open();
    let failing_calls = BTreeMap::from([("nvmlEventSetCreate".to_owned(), 999)]);
    node.set(&State { failing_calls, ..State::default() });
    assert!(matches!(driver.events(), Err(DriverError::Failed { code: 999, .. })));
}
