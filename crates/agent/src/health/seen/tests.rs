use octavo_gpu::{NvLinkTelemetry, PcieLink, RecoveryAction as Driver, Slowdown};

use super::*;
use crate::testing::{advice, well};

fn observed(reports: &[Report]) -> Vec<&Observation> {
    let mut observations = Vec::new();
    for report in reports {
        let Report::Observation(observation) = report else { panic!("{report:?}") };
        observations.push(observation);
    }
    observations
}

#[test]
fn a_gpu_that_is_well_reports_nothing() {
    let mut seen = Seen::default();
    let first = GpuHealth { uncorrected_errors: Some(3), ..well() };
    assert_eq!(seen.answer(&first, 0), [], "errors from before are not new");
    assert_eq!(seen.answer(&first, 60), []);
    assert!(seen.is_good());
}

#[test]
fn advice_is_repeated_until_it_ends_which_shows_a_remedy() {
    let mut seen = Seen::default();
    let asks = Observation::RecoveryAction(RecoveryAction::GpuReset);
    for now in 0..2 {
        assert_eq!(observed(&seen.answer(&advice(Driver::GpuReset), now)), [&asks]);
        assert!(!seen.is_good());
    }
    assert_eq!(seen.answer(&well(), 3), [Report::RemediedByOthers]);
    assert_eq!(seen.answer(&well(), 4), []);
}

#[test]
fn a_lost_gpu_that_answers_was_mended_once_nothing_is_advised() {
    let mut seen = Seen::default();
    assert_eq!(seen.lost(), Report::Observation(Observation::Lost));
    assert!(!seen.is_good());
    assert_eq!(observed(&seen.answer(&advice(Driver::GpuReset), 1)).len(), 1);
    assert_eq!(seen.answer(&well(), 2), [Report::RemediedByOthers]);
}

#[test]
fn a_driver_that_does_not_advise_shows_a_reset_by_its_counters() {
    let silent = |errors| GpuHealth { uncorrected_errors: Some(errors), ..GpuHealth::default() };
    let mut seen = Seen::default();
    assert_eq!(seen.answer(&silent(0), 0), []);
    assert_eq!(observed(&seen.answer(&silent(2), 1)), [&Observation::UncorrectedErrors(2)]);
    assert_eq!(seen.answer(&silent(2), 2), []);
    assert_eq!(seen.answer(&silent(0), 3), [Report::RemediedByOthers]);
}

#[test]
fn a_pending_row_remap_is_reported_once_an_hour() {
    let pending = GpuHealth { remap_pending: Some(true), ..well() };
    let mut seen = Seen::default();
    let reported = |seen: &mut Seen, now| {
        seen.telemetry(&GpuTelemetry::default(), now);
        seen.answer(&pending, now).len()
    };
    assert_eq!([0, 60, 3_599, 3_600].map(|now| reported(&mut seen, now)), [1, 0, 0, 1]);
    let in_mig_mode = advice(Driver::None);
    assert_eq!(seen.answer(&in_mig_mode, 3_700), [], "rows cannot be read");
    assert!(!seen.is_good());
    let failed = GpuHealth { remap_failed: Some(true), remap_pending: Some(false), ..well() };
    for now in [10, 11] {
        let rows = Observation::RemappedRows { is_pending: false, has_failed: true };
        assert_eq!(observed(&seen.answer(&failed, now)), [&rows]);
    }
}

#[test]
fn links_that_were_active_are_missed_and_noted_when_they_are_back() {
    let links = |active, recoveries| GpuTelemetry {
        nvlink: Some(NvLinkTelemetry {
            active,
            links: 18,
            recoveries,
            ..NvLinkTelemetry::default()
        }),
        ..GpuTelemetry::default()
    };
    let mut seen = Seen::default();
    assert_eq!(seen.telemetry(&links(12, 4), 0), [], "six lead nowhere");
    let report = seen.telemetry(&links(11, 5), 10);
    assert_eq!(observed(&report), [&Observation::Nvlink { inactive: 1, recoveries: 1 }]);
    assert!(!seen.is_good());
    assert_eq!(seen.telemetry(&links(12, 5), 20), []);
    assert_eq!(seen.answer(&well(), 30), [Report::RemediedByOthers]);
    let recovered = seen.telemetry(&links(12, 9), 40);
    assert_eq!(recovered, [], "once an hour");
    seen.telemetry(&links(0, 9), 50);
    seen.without_links();
    assert!(seen.is_good());
}

#[test]
fn a_gpu_of_which_the_driver_says_nothing_is_not_good() {
    let mut seen = Seen::default();
    seen.silent();
    assert!(!seen.is_good());
    seen.answer(&well(), 1);
    assert!(seen.is_good());
}

#[test]
fn a_slow_link_counts_under_load_alone() {
    let slow = |is_idle| GpuTelemetry {
        is_idle: Some(is_idle),
        pcie: Some(PcieLink { generation: 1, max_generation: 5, width: 16, max_width: 16 }),
        ..GpuTelemetry::default()
    };
    let mut seen = Seen::default();
    assert_eq!(seen.telemetry(&slow(true), 1), []);
    let degraded = Observation::Pcie { is_degraded: true, fatal: 0 };
    assert_eq!(observed(&seen.telemetry(&slow(false), 2)), [&degraded]);
    assert_eq!(seen.telemetry(&slow(false), 3), []);
}

#[test]
fn fatal_errors_of_the_pcie_link_count_once_they_rise() {
    let mut seen = Seen::default();
    assert_eq!(seen.pcie_errors(4), None, "from before the first look");
    assert_eq!(seen.pcie_errors(4), None);
    let errors = Observation::Pcie { is_degraded: false, fatal: 2 };
    assert_eq!(seen.pcie_errors(6), Some(Report::Observation(errors)));
    assert_eq!(seen.pcie_errors(0), None, "the node was started again");
}

#[test]
fn slowdowns_are_counted_by_their_begin_within_ten_minutes() {
    let slowed = |is_by_hardware| GpuTelemetry {
        slowdown: Some(Slowdown { is_by_hardware, ..Slowdown::default() }),
        ..GpuTelemetry::default()
    };
    let mut seen = Seen::default();
    let mut count = |is_slowed, now| {
        let reports = seen.telemetry(&slowed(is_slowed), now);
        observed(&reports).into_iter().next().cloned()
    };
    assert_eq!(count(true, 0), Some(Observation::Slowdowns(1)));
    assert_eq!(count(true, 10), None, "it goes on");
    assert_eq!(count(false, 20), None);
    assert_eq!(count(true, 30), Some(Observation::Slowdowns(2)));
    assert_eq!(count(false, 40), None);
    assert_eq!(count(true, 620), Some(Observation::Slowdowns(2)), "the first is too long ago");
}
