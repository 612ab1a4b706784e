//! The report as people or programs read it.

use std::io::{self, Write};

use octavo_term::TextTable;

use crate::args::Form;
use crate::driver::Code;
use crate::paths::{Finding, Verdict, WAYS};
use crate::run::{Report, Tried};
use crate::seen::Gpu;

/// Writes a report.
pub(crate) fn write(report: &Report, form: Form, out: &mut dyn Write) -> io::Result<()> {
    match form {
        Form::Json => {
            serde_json::to_writer_pretty(&mut *out, report)?;
            writeln!(out)?;
        }
        Form::Table => tables(report, out)?,
    }
    out.flush()
}

/// Writes the names of all ways.
pub(crate) fn list(out: &mut dyn Write) -> io::Result<()> {
    let mut table = TextTable::new(&["PATH", "ASKS BY"]);
    for way in WAYS {
        table.plain([way.name, way.what]);
    }
    write!(out, "{}", table.plain_text())?;
    out.flush()
}

fn tables(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let seen = &report.seen;
    writeln!(out, "CUDA {}, GPUs: {}, shares: {}", seen.cuda, seen.gpus.len(), seen.shares.len())?;
    for share in &seen.shares {
        writeln!(out, "share {}: {} of {}", share.folder, amount(share.memory_bytes), share.gpu)?;
    }
    for tried in &report.gpus {
        let gpu = seen.gpus.iter().find(|gpu| gpu.number == tried.gpu);
        writeln!(out, "\n{}", gpu.map_or_else(String::new, |gpu| headline(gpu, tried)))?;
        findings(tried, out)?;
        costs(tried, out)?;
    }
    Ok(())
}

fn headline(gpu: &Gpu, tried: &Tried) -> String {
    let what = if tried.is_share { "a share of " } else { "all of " };
    let management = gpu.management.map_or_else(
        || "NVML says nothing".to_owned(),
        |memory| {
            let (used, total) = (amount(memory.used_bytes), amount(memory.total_bytes));
            format!("NVML says {used} of {total} used")
        },
    );
    let limit = amount(tried.limit_bytes);
    format!("GPU {}: {limit}, {what}{} {}; {management}", gpu.number, gpu.name, gpu.uuid)
}

fn findings(tried: &Tried, out: &mut dyn Write) -> io::Result<()> {
    let header = ["PATH", "WALL", "GRANTED", "BEYOND", "NOTE"];
    let mut table = TextTable::new(&header).align_right([2]);
    for finding in &tried.findings {
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

fn costs(tried: &Tried, out: &mut dyn Write) -> io::Result<()> {
    if tried.costs.is_empty() {
        return Ok(());
    }
    let mut table = TextTable::new(&["CALL", "MEDIAN", "HALF OF ALL BETWEEN"]);
    for cost in &tried.costs {
        let between = format!("{:.0} and {:.0} ns", cost.lower_ns, cost.upper_ns);
        table.plain([cost.call.to_owned(), format!("{:.0} ns", cost.median_ns), between]);
    }
    write!(out, "{}", table.plain_text())
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::RefusedOtherwise => "holds, odd answer",
        Verdict::Passes => "PASSES",
        Verdict::Unsupported => "unsupported",
        Verdict::Skipped => "skipped",
    }
}

fn note(finding: &Finding) -> String {
    let lost = finding.lost_bytes.map(|lost| format!("{} not given back", amount(lost)));
    let notes: Vec<String> = finding.note.clone().into_iter().chain(lost).collect();
    notes.join("; ")
}

/// Bytes in MiB, which is how shares are cut.
fn amount(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
