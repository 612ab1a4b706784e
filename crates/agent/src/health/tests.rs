use octavo_health::state::State;

use super::*;
use crate::testing;

#[test]
fn a_watched_gpu_takes_pods_and_a_fenced_one_does_not() {
    let reason = Some(Reason::RemapPending);
    let state = State::Watch { reason: Reason::RemapPending };
    let watched = Fence { state, effect: Effect::None, reason };
    let watched = GpuState { fence: Some(watched), ..GpuState::default() };
    let fenced = testing::fenced(Reason::Xid(48), 1);
    let health = Health::from([("a".to_owned(), watched.clone()), ("b".to_owned(), fenced)]);
    assert_eq!(["a", "b", "c"].map(|uuid| takes_pods(&health, uuid)), [true, false, true]);
    let gone = GpuState { is_driver_gone: true, ..watched };
    assert!(!gone.takes_pods());
    assert_eq!(gone.message(), "the driver does not answer; a row remap waits for a reset");
}

#[test]
fn a_message_says_what_happened_what_is_needed_and_what_it_waits_for() {
    let state = GpuState { wait: Some(Wait::Person), ..testing::fenced(Reason::Xid(48), 1) };
    assert_eq!(
        state.message(),
        "XID 48 (Double Bit ECC Error); it needs the remedy reset-function; the policy leaves remedies to a person"
    );
}
