//! The table format of [`SharesReport`].

use octavo_term::{RowStyle, TextTable};

use super::{GateState, ShareFigures, ShareUse, SharesReport};
use crate::top::TableOptions;

/// Text of an unknown value.
const UNKNOWN_CELL: &str = "-";

/// Draws a report: a line for each share, then remarks.
pub fn render(report: &SharesReport, options: TableOptions) -> String {
    let mut text = if report.shares.is_empty() {
        "No GPU is held in shares.\n".to_owned()
    } else {
        table(report, options)
    };
    let remarks = remarks(report);
    if !remarks.is_empty() {
        text.push('\n');
        text.push_str(&remarks);
    }
    text
}

fn table(report: &SharesReport, options: TableOptions) -> String {
    let mut header = vec![
        "NODE",
        "GPU",
        "CLAIM",
        "POD",
        "LIMIT",
        "USED",
        "DRIVER",
        "UNTRACKED",
        "PEAK",
        "PROCESSES",
        "REFUSED",
        "GATE",
    ];
    // Only nodes that swap know of memory on the host.
    let has_swap =
        report.shares.iter().any(|share| share.figures.is_some_and(|f| f.swapped_bytes.is_some()));
    if has_swap {
        header.push("SWAPPED");
    }
    // Only nodes that give leases know of time.
    let has_time =
        report.shares.iter().any(|share| share.figures.is_some_and(|f| f.time.is_some()));
    if has_time {
        header.extend(["GPU TIME", "WAITED", "THROTTLED", "DEBT"]);
    }
    if options.wide {
        header.extend(["UNKNOWN CALLS", "OVERFLOWS", "SHARE", "UUID"]);
    }
    let mut table = TextTable::new(&header);
    for share in &report.shares {
        let pods =
            if share.pods.is_empty() { UNKNOWN_CELL.to_owned() } else { share.pods.join(", ") };
        let mut cells = vec![
            share.node.clone(),
            share.device.clone(),
            format!("{}/{}", share.namespace, share.claim),
            pods,
        ];
        let known = |text: fn(&ShareFigures) -> String| {
            share.figures.as_ref().map_or_else(|| UNKNOWN_CELL.to_owned(), text)
        };
        cells.push(share.figures.map_or_else(|| share.asked.clone(), |f| size(f.limit_bytes)));
        cells.extend([
            known(|f| {
                format!("{} ({}%)", size(f.used_bytes), percent(f.used_bytes, f.limit_bytes))
            }),
            known(|f| size(f.driver_bytes)),
            known(|f| size(f.untracked_bytes)),
            known(|f| size(f.peak_bytes)),
            known(|f| f.processes.to_string()),
            known(|f| f.refused.to_string()),
            known(|f| f.gate.word().to_owned()),
        ]);
        if has_swap {
            cells.push(known(|f| f.swapped_bytes.map_or_else(|| UNKNOWN_CELL.to_owned(), size)));
        }
        if has_time {
            cells.extend([
                known(|f| seconds(f.time.map(|time| time.used_ms))),
                known(|f| seconds(f.time.map(|time| time.waited_ms))),
                known(|f| seconds(f.time.map(|time| time.throttled_ms))),
                known(|f| seconds(f.time.map(|time| time.debt_ms))),
            ]);
        }
        if options.wide {
            cells.extend([
                known(|f| f.unknown_calls.to_string()),
                known(|f| f.overflows.to_string()),
                share.share.clone(),
                share.gpu.clone().unwrap_or_default(),
            ]);
        }
        table.row(style(share), cells);
    }
    table.draw(options.headers, options.colour)
}

fn style(share: &ShareUse) -> RowStyle {
    match share.figures {
        Some(figures) if figures.gate != GateState::Open => RowStyle::Warn,
        Some(figures) if figures.driver_bytes > figures.limit_bytes => RowStyle::Warn,
        None => RowStyle::Warn,
        Some(_) => RowStyle::Plain,
    }
}

/// Remarks that a reader should not miss, one per line.
fn remarks(report: &SharesReport) -> String {
    let mut lines = Vec::new();
    for unread in &report.unread {
        let of = if unread.node.is_empty() { String::new() } else { format!("{}: ", unread.node) };
        lines.push(format!("No figures for {of}{}.", unread.message));
    }
    for gap in &report.gaps {
        lines
            .push(format!("Not shown, because reading is denied: {} ({}).", gap.kind, gap.message));
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

/// Bytes with three digits or so: `20Gi`, `1.5Gi`, `512Mi`, `0`.
fn size(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
    for (unit, shift) in UNITS {
        let one = 1 << shift;
        if bytes >= one {
            // Tenths are cut off, so that a share that is not full does not look full.
            let tenths = (u128::from(bytes) * 10) >> shift;
            let (whole, tenth) = (tenths / 10, tenths % 10);
            let is_short = whole < 100 && tenth > 0;
            return if is_short {
                format!("{whole}.{tenth}{unit}")
            } else {
                format!("{whole}{unit}")
            };
        }
    }
    bytes.to_string()
}

/// Milliseconds as seconds with a tenth: `12.3s`.
fn seconds(milliseconds: Option<u64>) -> String {
    milliseconds.map_or_else(
        || UNKNOWN_CELL.to_owned(),
        |milliseconds| format!("{}.{}s", milliseconds / 1_000, milliseconds % 1_000 / 100),
    )
}

fn percent(part: u64, whole: u64) -> u128 {
    u128::from(part) * 100 / u128::from(whole.max(1))
}

#[cfg(test)]
mod tests;
