use super::*;

fn of_number(number: u32, link: LinkSeverity) -> Verdict {
    of(&Observation::Xid { number, job: None, link }, &BTreeMap::new())
}

fn observed(observation: &Observation) -> Verdict {
    of(observation, &BTreeMap::new())
}

#[test]
fn xids_call_for_what_their_class_says() {
    let unknown = LinkSeverity::Unknown;
    assert_eq!(of_number(31, unknown), Verdict::Application { number: 31 });
    assert_eq!(of_number(63, unknown), watch(Reason::Xid(63)));
    let contained = Verdict::Watch { reason: Reason::Xid(94), is_failure: true };
    assert_eq!(of_number(94, unknown), contained);
    let reset = fence(Reason::Xid(48), Remedy::ResetFunction, Reach::Device);
    assert_eq!(of_number(48, unknown), reset);
    assert_eq!(of_number(64, unknown), fence(Reason::Xid(64), Remedy::Replace, Reach::Device));
    assert_eq!(of_number(79, unknown), fence(Reason::Xid(79), Remedy::Reboot, Reach::Node));
    assert_eq!(of_number(999, unknown), suspect(Reason::Xid(999), Remedy::Test));
    assert_eq!(of_number(154, unknown), Verdict::Nothing);
}

#[test]
fn the_severity_of_a_link_decides() {
    let reason = Reason::Xid(145);
    let fatal = fence(reason, Remedy::ResetFunction, Reach::Island);
    assert_eq!(of_number(145, LinkSeverity::Fatal), fatal);
    assert_eq!(of_number(145, LinkSeverity::NonFatal), watch(reason));
    assert_eq!(of_number(145, LinkSeverity::Unknown), suspect(reason, Remedy::ResetFunction));
}

#[test]
fn overrides_go_before_the_catalogue() {
    let overrides = BTreeMap::from([(31, XidClass::Reset), (999, XidClass::Notice)]);
    let of_number = |number| {
        of(&Observation::Xid { number, job: None, link: LinkSeverity::Unknown }, &overrides)
    };
    assert_eq!(of_number(31), fence(Reason::Xid(31), Remedy::ResetFunction, Reach::Device));
    assert_eq!(of_number(999), Verdict::Nothing);
}

#[test]
fn the_drivers_advice_decides() {
    let verdict = |action| observed(&Observation::RecoveryAction(action));
    let reason = Reason::RecoveryAction;
    assert_eq!(verdict(RecoveryAction::None), Verdict::Nothing);
    let reset = RecoveryAction::GpuReset;
    assert_eq!(verdict(reset), fence(reason(reset), Remedy::ResetFunction, Reach::Device));
    let reboot = RecoveryAction::NodeReboot;
    assert_eq!(verdict(reboot), fence(reason(reboot), Remedy::Reboot, Reach::Node));
    let drain = RecoveryAction::DrainAndReset;
    assert_eq!(verdict(drain), suspect(reason(drain), Remedy::ResetFunction));
    let p2p = RecoveryAction::DrainP2p;
    assert_eq!(verdict(p2p), suspect(reason(p2p), Remedy::Test));
}

#[test]
fn a_remap_that_failed_goes_before_one_that_is_pending() {
    let rows =
        |is_pending, has_failed| observed(&Observation::RemappedRows { is_pending, has_failed });
    assert_eq!(rows(false, false), Verdict::Nothing);
    assert_eq!(rows(true, false), watch(Reason::RemapPending));
    assert_eq!(rows(true, true), fence(Reason::RemapFailed, Remedy::Replace, Reach::Device));
}

#[test]
fn thresholds_are_those_of_the_design() {
    assert_eq!(observed(&Observation::TemperatureMargin(1)), Verdict::Nothing);
    assert_eq!(observed(&Observation::TemperatureMargin(0)), watch(Reason::Hot));
    assert_eq!(observed(&Observation::Slowdowns(5)), Verdict::Nothing);
    assert_eq!(observed(&Observation::Slowdowns(6)), watch(Reason::Slowdowns));
    let port = |symbol_errors, recoveries, flaps| {
        observed(&Observation::Nic(NicPort { is_down: false, symbol_errors, recoveries, flaps }))
    };
    assert_eq!(port(120, 5, 2), Verdict::Nothing);
    assert_eq!(port(121, 0, 0), suspect(Reason::Nic, Remedy::Test));
    assert_eq!(port(0, 6, 0), watch(Reason::Nic));
    assert_eq!(port(0, 0, 3), suspect(Reason::Nic, Remedy::Test));
    assert_eq!(observed(&Observation::Nvlink { inactive: 0, recoveries: 0 }), Verdict::Nothing);
    let down = suspect(Reason::LinkDown, Remedy::ResetFunction);
    assert_eq!(observed(&Observation::Nvlink { inactive: 1, recoveries: 9 }), down);
    assert_eq!(observed(&Observation::Pcie { is_degraded: false, fatal: 0 }), Verdict::Nothing);
    let degraded = Observation::Pcie { is_degraded: true, fatal: 0 };
    assert_eq!(observed(&degraded), watch(Reason::PcieDegraded));
    let errors = suspect(Reason::UncorrectedErrors, Remedy::ResetFunction);
    assert_eq!(observed(&Observation::UncorrectedErrors(1)), errors);
    let fabric = fence(Reason::FabricUnhealthy, Remedy::ResetFunction, Reach::Island);
    assert_eq!(observed(&Observation::Fabric { is_healthy: false }), fabric);
    assert_eq!(observed(&Observation::Lost), fence(Reason::Lost, Remedy::Reboot, Reach::Node));
}
