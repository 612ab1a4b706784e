//! `octavo probe verify`: the test of GPUs after a repair, before they return to service.
//!
//! ```text
//! supervisor  starts the worker, reads its lines, ends it when it is silent for too long
//!   └── worker  a process of its own: a driver that hangs takes no report with it
//!         ├── facts    what the driver says, by NVML
//!         ├── memory   patterns written and read by kernels
//!         ├── compute  products of matrices on every multiprocessor
//!         └── peers    copies between GPUs
//! ```
//!
//! Rates are reported and judge nothing. Only work that does not end within its deadline fails for its time.

mod args;
mod compute;
mod facts;
mod gpu;
mod kernels;
mod memory;
mod output;
mod patterns;
mod peers;
mod progress;
mod report;
mod supervisor;
mod worker;

use std::io::Write;
use std::time::Instant;

pub use args::VerifyArgs;

use crate::run::ProbeResult;
use report::{Report, Verdict};

/// Tests, and writes a report. Whether it can be written changes no verdict.
pub(crate) fn run(args: &VerifyArgs, out: &mut dyn Write) -> ProbeResult {
    if args.worker {
        worker::run(args);
        return ProbeResult::Holds;
    }
    let began = Instant::now();
    let collected = supervisor::run(args);
    let seconds = (began.elapsed().as_secs_f64() * 10.0).round() / 10.0;
    let report = Report::new(collected.gpus, collected.message, seconds);
    // The exit code is the answer where nothing reads the report.
    let _ = out.write_all(output::text(&report, args.output).as_bytes()).and_then(|()| out.flush());
    match report.verdict {
        Verdict::Passed => ProbeResult::Holds,
        Verdict::NotTried => ProbeResult::NotTried,
        Verdict::Failed => ProbeResult::Faulty,
    }
}

#[cfg(test)]
mod tests;
