//! The fleets of published figures.

use crate::faults::span::Span;
use crate::faults::study::{
    Checkpoints, Detection, Failures, Fleet, Job, Lemons, Length, Memory, Repair, Restart, Study,
    Swap,
};

/// No time for anything, and nothing that fails.
fn ideal(servers: u32, job: u32, length: Length) -> Study {
    Study {
        fleet: Fleet { servers, spares: 0, gpus_per_server: 8, parents: Vec::new() },
        job: Job { servers: job, standbys: 0, length },
        failures: Failures {
            per_day: 0.0,
            second_server: 0.0,
            wrong_blame: 0.0,
            false_alarms_per_day: 0.0,
            memory: Memory { share: 0.0, ..Memory::default() },
            detection: Vec::new(),
        },
        lemons: Lemons { share: 0.0, factor: 1.0 },
        restart: Restart {
            recovery: Span::ZERO,
            select: Span::ZERO,
            requeue: Span::ZERO,
            in_place: Span::ZERO,
            live: Span::ZERO,
            swap: Swap::InPlace,
            cold_start: Span::ZERO,
            fetch_spare: Span::ZERO,
        },
        checkpoints: Checkpoints { every: Span::ZERO, write: Span::ZERO },
        ..Study::default()
    }
}

/// A job of 4,096 servers by AIReSim's rules: 16 stand by, no work is lost.
fn airesim(servers: u32, days: u64, recovery: u64) -> Study {
    let mut study = ideal(servers, 4096, Length::Computing(Span::days(days)));
    study.fleet.spares = 200;
    study.job.standbys = 16;
    study.restart.recovery = Span::minutes(recovery);
    study.restart.select = Span::minutes(3);
    study.restart.fetch_spare = Span::minutes(20);
    study
}

/// AIReSim's Table I.
pub(super) fn table_1() -> Study {
    let mut study = airesim(4160, 256, 20);
    study.failures.per_day = 0.01;
    study.lemons = Lemons { share: 0.15, factor: 6.0 };
    study
}

/// A fleet in which most repairs are in vain: 4,600 servers, of which 8 % fail 21 times as often.
pub fn hard_repairs() -> Study {
    let mut study = airesim(4600, 14, 60);
    study.failures.per_day = 0.02;
    study.lemons = Lemons { share: 0.08, factor: 21.0 };
    study.repair = Repair { automatic_in_vain: 0.6, manual_in_vain: 0.75, ..Repair::default() };
    study
}

/// Meta's RSC-1: a job on so many servers that saves its work every `interval` minutes, and starts
/// again within `restart` minutes.
pub(super) fn rsc(servers: u32, days: u64, interval: u64, restart: u64) -> Study {
    let mut study = ideal(servers + 100, servers, Length::Elapsed(Span::days(days)));
    study.failures.per_day = 0.0065;
    study.restart.requeue = Span::minutes(restart);
    study.checkpoints.every = Span::minutes(interval);
    study
}

/// One job of 512 GPUs on RSC-1 that fails in 4 % of cases without bad servers; with some or none of
/// the 24 bad ones.
pub(super) fn rsc_lemons(has_lemons: bool) -> Study {
    let mut study = ideal(2000, 64, Length::Elapsed(Span::hours(8)));
    let lemons = Lemons { share: 0.012, factor: 200.0 };
    study.failures.per_day = 0.0065 / lemons.mean_factor();
    if has_lemons {
        study.lemons = lemons;
    }
    study
}

/// Llama 3's 54 days on 16,384 GPUs. The interval of checkpoints is not published.
pub(super) fn llama() -> Study {
    let mut study = ideal(2148, 2048, Length::Elapsed(Span::days(54)));
    study.failures.per_day = 0.003_79;
    study.failures.detection = vec![
        Detection { share: 0.9, after: Span::minutes(1) },
        Detection { share: 0.1, after: Span::minutes(15) },
    ];
    study.restart.requeue = Span::minutes(10);
    study.checkpoints.every = Span::minutes(10);
    study
}

/// Delta's 608 H100 GPUs in 152 servers for a month, with so many servers more. Servers fail as often
/// as makes each available for 99.3 % of the time with 2.2 hours of repair.
pub(super) fn delta(more: u32, repair: Span) -> Study {
    let mut study = ideal(152 + more, 152, Length::Elapsed(Span::days(30)));
    study.fleet.gpus_per_server = 4;
    study.failures.per_day = 24.0 / (2.2 / 0.007 - 2.2);
    study.repair = Repair { automatic: repair, manual_share: 0.0, ..Repair::default() };
    study
}
