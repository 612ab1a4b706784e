use super::*;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn gpu(number: u32) -> DeviceName {
    DeviceName { node: "a".to_owned(), device: format!("gpu-{number}") }
}

fn reported(state: &str, reason: Option<&str>, attempt: i64) -> Reported {
    let (state, reason) = (state.to_owned(), reason.map(str::to_owned));
    Reported { state, reason, attempt, ..Reported::default() }
}

/// Two GPUs in service, each under a pod.
fn judge() -> Judge {
    let mut judge = Judge::new(2, 2);
    for number in 0..2 {
        judge.take(seconds(0), Seen::Device(gpu(number), reported("Healthy", None, 0)));
        judge.take(seconds(0), claim(number, &[number]));
        judge.take(seconds(0), pod(number, false));
    }
    assert!(judge.is_settled());
    judge
}

fn claim(number: u32, gpus: &[u32]) -> Seen {
    let devices = gpus.iter().map(|number| gpu(*number)).collect();
    Seen::Claim(format!("c{number}"), Some(Claim { name: format!("claim-{number}"), devices }))
}

fn pod(number: u32, is_leaving: bool) -> Seen {
    let claims = BTreeSet::from([format!("claim-{number}")]);
    let name = format!("pod-{number}");
    let pod = Pod { name, claims, is_running: true, is_leaving, ..Pod::default() };
    Seen::Pod(format!("p{number}"), Some(pod))
}

fn kinds(judge: &Judge) -> Vec<&'static str> {
    judge.violations().iter().map(|violation| violation.kind).collect()
}

#[test]
fn a_gpu_that_fails_may_lose_its_pod_and_returns_after_a_test() {
    let mut judge = judge();
    judge.injected(seconds(20), gpu(0), GpuFault::Xid(95));
    judge.take(seconds(21), Seen::Taint(gpu(0), true));
    judge.take(seconds(21), Seen::Device(gpu(0), reported("Fenced", Some("Xid"), 0)));
    judge.take(seconds(22), pod(0, true));
    judge.take(seconds(23), Seen::Pod("p0".to_owned(), None));
    judge.take(seconds(23), Seen::Claim("c0".to_owned(), None));
    assert!(!judge.is_settled());
    judge.take(seconds(40), Seen::Device(gpu(0), reported("Probation", None, 1)));
    judge.take(seconds(41), Seen::Taint(gpu(0), false));
    judge.take(seconds(42), claim(2, &[0]));
    judge.take(seconds(42), pod(2, false));
    assert!(judge.is_settled());
    judge.end(seconds(50));
    assert_eq!(kinds(&judge), [""; 0]);
    assert_eq!(judge.latencies.taint, [seconds(1)]);
    assert_eq!(judge.latencies.eviction, [seconds(2)]);
    assert_eq!(judge.latencies.out_of_service, [seconds(19)]);

    // The fault is over: the next pod is not to leave.
    judge.take(seconds(60), pod(2, true));
    assert_eq!(kinds(&judge), ["PodKilled"]);
}

#[test]
fn a_gpu_that_two_claims_have_is_seen() {
    let mut judge = judge();
    judge.take(seconds(1), claim(2, &[1]));
    assert_eq!(kinds(&judge), ["GivenTwice"]);
    assert!(judge.violations()[0].message.contains("claim-1 and claim-2"));
    // The same again is no other violation.
    judge.take(seconds(2), claim(2, &[1]));
    assert_eq!(judge.violations().len(), 1);
}

#[test]
fn a_fence_needs_a_fault_of_the_device() {
    let mut judge = judge();
    judge.injected(seconds(1), gpu(0), GpuFault::HarmlessXid(31));
    judge.take(seconds(2), Seen::Device(gpu(0), reported("Suspect", Some("RepeatedXid"), 0)));
    assert_eq!(kinds(&judge), ["FalseFence"]);
    // A peer may drain for another's remedy, and returns with it.
    judge.injected(seconds(3), gpu(0), GpuFault::Lost);
    judge.take(seconds(4), Seen::Device(gpu(1), reported("Suspect", Some("PeerRemedy"), 0)));
    judge.take(seconds(9), Seen::Device(gpu(1), reported("Healthy", None, 0)));
    assert_eq!(judge.violations().len(), 1);
}

#[test]
fn a_return_needs_a_test_or_a_release() {
    let mut judge = judge();
    for (at, number) in [(1, 0), (1, 1)] {
        judge.injected(seconds(at), gpu(number), GpuFault::RemapFailed);
        judge.take(
            seconds(at),
            Seen::Device(gpu(number), reported("Retired", Some("RowRemapFailed"), 3)),
        );
    }
    let released = Reported { order: 1, ..reported("Probation", None, 3) };
    judge.take(seconds(2), Seen::Device(gpu(0), released));
    assert_eq!(kinds(&judge), [""; 0]);
    judge.take(seconds(2), Seen::Device(gpu(1), reported("Healthy", None, 3)));
    judge.take(seconds(3), Seen::Device(gpu(1), reported("Healthy", None, 2)));
    assert_eq!(kinds(&judge), ["UntestedReturn", "AttemptsFell"]);
}

#[test]
fn a_remedy_of_an_idle_gpu_may_begin_before_a_fence_is_reported() {
    let mut judge = judge();
    judge.injected(seconds(1), gpu(0), GpuFault::RemapPending);
    let watched = reported("Watch", Some("RowRemapPending"), 0);
    judge.take(seconds(2), Seen::Device(gpu(0), watched));
    let resets = reported("Resetting", Some("RowRemapPending"), 1);
    judge.take(seconds(3), Seen::Device(gpu(0), resets));
    judge.take(seconds(4), Seen::Device(gpu(0), reported("Probation", None, 1)));
    assert_eq!(kinds(&judge), [""; 0]);
}

#[test]
fn a_gpu_with_an_old_taint_is_not_to_be_allocated() {
    let mut judge = judge();
    judge.injected(seconds(1), gpu(0), GpuFault::Xid(48));
    judge.take(seconds(1), Seen::Taint(gpu(0), true));
    judge.take(seconds(2), Seen::Claim("c0".to_owned(), None));
    judge.take(seconds(5), claim(2, &[0]));
    assert_eq!(kinds(&judge), [""; 0], "a scheduler may not have seen the taint");
    judge.take(seconds(6), Seen::Claim("c2".to_owned(), None));
    judge.take(seconds(20), claim(3, &[0]));
    assert_eq!(kinds(&judge), ["GivenWhileTainted"]);
}

#[test]
fn the_end_wants_all_gpus_back_and_all_pods_running() {
    let mut judge = judge();
    judge.injected(seconds(1), gpu(0), GpuFault::Xid(48));
    judge.take(seconds(2), Seen::Device(gpu(0), reported("Fenced", Some("Xid"), 0)));
    judge.ended("p1");
    judge.take(seconds(3), pod(1, true));
    judge.end(seconds(9));
    assert_eq!(kinds(&judge), ["NotReturned"], "one GPU is too few for two pods");
    judge.take(seconds(10), Seen::Device(gpu(0), reported("Probation", None, 1)));
    judge.end(seconds(11));
    assert_eq!(kinds(&judge), ["NotReturned", "PodsMissing"]);
}

#[test]
fn latencies_near_a_kill_are_apart() {
    let mut judge = judge();
    judge.program_killed(seconds(30));
    judge.injected(seconds(40), gpu(0), GpuFault::Xid(48));
    judge.take(seconds(41), Seen::Taint(gpu(0), true));
    judge.injected(seconds(50), gpu(1), GpuFault::Xid(48));
    judge.program_killed(seconds(51));
    judge.take(seconds(52), Seen::Taint(gpu(1), true));
    assert!(judge.latencies.taint.is_empty());
    assert_eq!(judge.latencies.taint_disturbed, [seconds(1), seconds(2)]);
}

#[test]
fn a_fault_without_a_fence_is_seen_at_the_end() {
    let mut judge = judge();
    judge.injected(seconds(1), gpu(0), GpuFault::Xid(48));
    judge.injected(seconds(1), gpu(1), GpuFault::Hot);
    judge.end(seconds(9));
    assert_eq!(kinds(&judge), ["NotFenced"]);
}

/// The GPU failed, and went out of service at 21 s with its first attempt.
fn out_of_service() -> Judge {
    let mut judge = judge();
    judge.looked(seconds(19), &gpu(0), 4, true);
    judge.injected(seconds(20), gpu(0), GpuFault::Xid(95));
    judge.take(seconds(21), Seen::Device(gpu(0), reported("Fenced", Some("Xid"), 0)));
    judge.take(seconds(22), Seen::Device(gpu(0), reported("Resetting", Some("Xid"), 1)));
    judge
}

#[test]
fn a_return_of_a_gpu_that_the_driver_does_not_call_well_had_no_test() {
    for is_well in [true, false] {
        let mut judge = out_of_service();
        judge.looked(seconds(40), &gpu(0), 5, false);
        judge.take(seconds(41), Seen::Device(gpu(0), reported("Probation", None, 1)));
        judge.looked(seconds(41), &gpu(0), 5, is_well);
        let wanted: &[&str] = if is_well { &[] } else { &["ReturnedSick"] };
        assert_eq!(kinds(&judge), wanted);
    }
}

#[test]
fn a_fault_just_before_a_return_is_to_be_fenced_yet() {
    for is_fenced in [true, false] {
        let mut judge = out_of_service();
        judge.injected(seconds(38), gpu(0), GpuFault::Xid(48));
        judge.take(seconds(41), Seen::Device(gpu(0), reported("Probation", None, 1)));
        judge.looked(seconds(41), &gpu(0), 5, false);
        if is_fenced {
            judge.take(seconds(43), Seen::Device(gpu(0), reported("Fenced", Some("Xid"), 1)));
            judge.take(seconds(50), Seen::Device(gpu(0), reported("Probation", None, 2)));
        }
        judge.end(seconds(60));
        let wanted: &[&str] = if is_fenced { &[] } else { &["NotFenced"] };
        assert_eq!(kinds(&judge), wanted);
    }
}

#[test]
fn each_attempt_resets_once() {
    let mut judge = out_of_service();
    judge.looked(seconds(23), &gpu(0), 5, true);
    judge.looked(seconds(24), &gpu(0), 6, true);
    judge.looked(seconds(50), &gpu(0), 6, true);
    assert_eq!(kinds(&judge), [""; 0], "the next attempt may not be reported yet");
    judge.looked(seconds(54), &gpu(0), 6, true);
    judge.looked(seconds(90), &gpu(0), 6, true);
    assert_eq!(kinds(&judge), ["RemedyRepeated"]);
    // By the return all attempts are reported.
    let mut judge = out_of_service();
    judge.looked(seconds(24), &gpu(0), 6, true);
    judge.take(seconds(25), Seen::Device(gpu(0), reported("Probation", None, 1)));
    assert_eq!(kinds(&judge), ["RemedyRepeated"]);
    // The look that shows the reset may come after the report of the return.
    let mut judge = out_of_service();
    judge.looked(seconds(24), &gpu(0), 5, true);
    judge.take(seconds(25), Seen::Device(gpu(0), reported("Probation", None, 1)));
    judge.looked(seconds(25), &gpu(0), 6, true);
    judge.injected(seconds(26), gpu(0), GpuFault::Xid(95));
    judge.take(seconds(27), Seen::Device(gpu(0), reported("Resetting", Some("Xid"), 2)));
    judge.looked(seconds(28), &gpu(0), 7, true);
    judge.take(seconds(29), Seen::Device(gpu(0), reported("Probation", None, 2)));
    assert_eq!(kinds(&judge), [""; 0]);
    // The reset of an attempt that was reported before the watch was interrupted.
    let mut judge = out_of_service();
    judge.take(seconds(24), Seen::ReportsUnknown);
    judge.looked(seconds(24), &gpu(0), 4, true);
    judge.looked(seconds(25), &gpu(0), 5, true);
    judge.take(seconds(26), Seen::Device(gpu(0), reported("Probation", None, 1)));
    assert_eq!(kinds(&judge), [""; 0]);
    // Two attempts, another board, and an interrupted watch.
    let mut judge = out_of_service();
    judge.take(seconds(24), Seen::Device(gpu(0), reported("Resetting", Some("Xid"), 3)));
    judge.looked(seconds(25), &gpu(0), 6, true);
    judge.looked(seconds(26), &gpu(0), 0, true);
    judge.take(seconds(27), Seen::ReportsUnknown);
    judge.looked(seconds(28), &gpu(0), 0, true);
    judge.take(seconds(60), Seen::Device(gpu(0), reported("Probation", None, 3)));
    assert_eq!(kinds(&judge), [""; 0]);
}

#[test]
fn a_gpu_retires_for_a_cause() {
    let retired = |judge: &mut Judge, reason: &str, order: i64| {
        let report = Reported { order, ..reported("Retired", Some(reason), 1) };
        judge.take(seconds(30), Seen::Device(gpu(0), report));
    };
    for (reason, order, wanted) in [
        ("TestFailed", 0, &["RetiredWithoutCause"][..]),
        ("Relapsed", 0, &["RetiredWithoutCause"]),
        ("Operator", 0, &["RetiredWithoutCause"]),
        ("Operator", 1, &[]),
    ] {
        let mut judge = out_of_service();
        retired(&mut judge, reason, order);
        assert_eq!(kinds(&judge), wanted, "{reason} {order}");
    }
    // A bad board.
    let mut judge = out_of_service();
    judge.injected(seconds(25), gpu(0), GpuFault::RemapFailed);
    retired(&mut judge, "RowRemapFailed", 0);
    assert_eq!(kinds(&judge), [""; 0]);
    // Three remedies in vain.
    let mut judge = out_of_service();
    for attempt in 2..4 {
        let report = reported("Resetting", Some("TestFailed"), attempt);
        judge.take(seconds(26), Seen::Device(gpu(0), report));
    }
    judge.take(seconds(30), Seen::Device(gpu(0), reported("Retired", Some("TestFailed"), 3)));
    assert_eq!(kinds(&judge), [""; 0]);
}

#[test]
fn a_fault_of_an_island_reaches_its_gpus_for_a_while() {
    let mut judge = judge();
    judge.injected(seconds(20), gpu(0), GpuFault::SwitchFails(20_034));
    judge.take(seconds(21), pod(1, true));
    let fabric = || reported("Fenced", Some("FabricUnhealthy"), 0);
    judge.take(seconds(22), Seen::Device(gpu(1), fabric()));
    assert_eq!(kinds(&judge), [""; 0]);
    judge.take(seconds(90), Seen::Device(gpu(0), fabric()));
    assert_eq!(kinds(&judge), ["FalseFence"]);
    judge.injected(seconds(91), gpu(1), GpuFault::LinkGoesOn(145));
    judge.end(seconds(92));
    assert!(!kinds(&judge).contains(&"NotFenced"));
}
