//! The report as tables or JSON.

use std::io::{self, Write};

use octavo_term::TextTable;

use crate::args::OutputFormat;
use crate::driver::Code;
use crate::environment::Gpu;
use crate::paths::{ALLOCATION_PATHS, Finding, Verdict};
use crate::run::{GpuReport, Report};

/// Writes a report.
pub(crate) fn write(report: &Report, form: OutputFormat, out: &mut dyn Write) -> io::Result<()> {
    match form {
        OutputFormat::Json => {
            serde_json::to_writer_pretty(&mut *out, report)?;
            writeln!(out)?;
        }
        OutputFormat::Table => tables(report, out)?,
    }
    out.flush()
}

/// Writes the names of all allocation paths.
pub(crate) fn list(out: &mut dyn Write) -> io::Result<()> {
    let mut table = TextTable::new(&["PATH", "FUNCTIONS"]);
    for path in ALLOCATION_PATHS {
        table.plain([path.name, path.what]);
    }
    write!(out, "{}", table.plain_text())?;
    out.flush()
}

fn tables(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let environment = &report.environment;
    writeln!(
        out,
        "CUDA {}, GPUs: {}, shares: {}",
        environment.cuda,
        environment.gpus.len(),
        environment.shares.len()
    )?;
    for share in &environment.shares {
        writeln!(out, "share {}: {} of {}", share.folder, amount(share.memory_bytes), share.gpu)?;
    }
    for report_of_gpu in &report.gpus {
        let gpu = environment.gpus.iter().find(|gpu| gpu.number == report_of_gpu.gpu);
        writeln!(out, "\n{}", gpu.map_or_else(String::new, |gpu| headline(gpu, report_of_gpu)))?;
        findings(report_of_gpu, out)?;
        costs(report_of_gpu, out)?;
    }
    Ok(())
}

fn headline(gpu: &Gpu, report_of_gpu: &GpuReport) -> String {
    let what = if report_of_gpu.is_share { "a share of " } else { "all of " };
    let nvml = gpu.nvml.map_or_else(
        || "NVML says nothing".to_owned(),
        |memory| {
            let (used, total) = (amount(memory.used_bytes), amount(memory.total_bytes));
            format!("NVML says {used} of {total} used")
        },
    );
    let limit = amount(report_of_gpu.limit_bytes);
    format!("GPU {}: {limit}, {what}{} {}; {nvml}", gpu.number, gpu.name, gpu.uuid)
}

fn findings(report_of_gpu: &GpuReport, out: &mut dyn Write) -> io::Result<()> {
    let header = ["PATH", "RESULT", "GRANTED", "BEYOND", "NOTE"];
    let mut table = TextTable::new(&header).align_right([2]);
    for finding in &report_of_gpu.findings {
        let granted = finding.granted_bytes.map_or_else(|| "-".to_owned(), amount);
        let beyond = finding.beyond.map_or_else(|| "-".to_owned(), Code::name);
        table.plain([
            finding.path.to_owned(),
            word(finding.verdict).to_owned(),
            granted,
            beyond,
            note(finding),
        ]);
    }
    write!(out, "{}", table.plain_text())
}

fn costs(report_of_gpu: &GpuReport, out: &mut dyn Write) -> io::Result<()> {
    if report_of_gpu.costs.is_empty() {
        return Ok(());
    }
    let mut table = TextTable::new(&["CALL", "MEDIAN", "QUARTILES"]);
    for cost in &report_of_gpu.costs {
        let between = format!("{:.0} and {:.0} ns", cost.lower_ns, cost.upper_ns);
        table.plain([cost.call.to_owned(), format!("{:.0} ns", cost.median_ns), between]);
    }
    write!(out, "{}", table.plain_text())
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::RefusedOtherwise => "holds, other error",
        Verdict::Passes => "PASSES",
        Verdict::Unsupported => "unsupported",
        Verdict::Skipped => "skipped",
    }
}

fn note(finding: &Finding) -> String {
    let lost = finding.lost_bytes.map(|lost| format!("{} not freed", amount(lost)));
    let notes: Vec<String> = finding.note.clone().into_iter().chain(lost).collect();
    notes.join("; ")
}

/// Bytes in MiB, the unit of shares.
fn amount(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
