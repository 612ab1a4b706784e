//! The report as tables or JSON.

use std::io::{self, Write};

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};

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
    let mut table = table(["PATH", "FUNCTIONS"]);
    for path in ALLOCATION_PATHS {
        table.add_row([path.name, path.what]);
    }
    write!(out, "{}", trimmed(table))?;
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
    let mut table = table(["PATH", "RESULT", "GRANTED", "BEYOND", "NOTE"]);
    for finding in &report_of_gpu.findings {
        let granted = finding.granted_bytes.map_or_else(|| "-".to_owned(), amount);
        let beyond = finding.beyond.map_or_else(|| "-".to_owned(), Code::name);
        table.add_row([
            finding.path.to_owned(),
            word(finding.verdict).to_owned(),
            granted,
            beyond,
            note(finding),
        ]);
    }
    if let Some(column) = table.column_mut(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    write!(out, "{}", trimmed(table))
}

fn costs(report_of_gpu: &GpuReport, out: &mut dyn Write) -> io::Result<()> {
    if report_of_gpu.costs.is_empty() {
        return Ok(());
    }
    let mut table = table(["CALL", "MEDIAN", "QUARTILES"]);
    for cost in &report_of_gpu.costs {
        let between = format!("{:.0} and {:.0} ns", cost.lower_ns, cost.upper_ns);
        table.add_row([cost.call.to_owned(), format!("{:.0} ns", cost.median_ns), between]);
    }
    write!(out, "{}", trimmed(table))
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

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    table
}

/// The table without trailing blanks.
fn trimmed(mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().fold(String::new(), |mut text, line| {
        text.push_str(line.trim_end());
        text.push('\n');
        text
    })
}
