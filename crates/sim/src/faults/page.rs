//! A sweep as one HTML page: the GPU-hours that each policy loses, over the share of wrong blame.

use std::fmt::Write as _;

use super::args::SweepReport;
use super::number::count;
use super::summary::Summary;
use super::sweep::CellResult;
use super::table;
use crate::report::chart::{Chart, CurveLine};
use crate::report::curves::BandPoint;
use crate::report::escape::Escaped;
use crate::report::page::{COLOUR_COUNT, STYLE};

/// The page. `command` is the command line that made it.
pub(super) fn page(report: &SweepReport<'_>, command: &str) -> String {
    let title = "What a health policy saves";
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n<p>{}</p>\n",
        Escaped(&table::heading(report.study, report.seeds)),
    );
    html.push_str("<h2>Lost GPU-hours</h2>\n");
    legend(&mut html, report);
    html.push_str("<div class=\"charts\">\n");
    for (number, cells) in groups(report.cells).enumerate() {
        html.push_str(&chart(number, cells));
    }
    html.push_str("</div>\n<h2>Where another policy loses less than octavo</h2>\n<ul>\n");
    for line in report.cells.iter().filter_map(table::not_best) {
        let _ = writeln!(html, "<li>{}</li>", Escaped(&line));
    }
    html.push_str("</ul>\n<h2>Figures</h2>\n");
    for result in report.cells {
        figures(&mut html, result);
    }
    let _ = writeln!(
        html,
        "<h2>Inputs</h2>\n<dl>\n<dt>Command</dt><dd><code class=\"typed\">{}</code></dd>\n\
         <dt>Program</dt><dd>octavo {}</dd>\n</dl>\n</main>\n</body>\n</html>",
        Escaped(command),
        env!("CARGO_PKG_VERSION"),
    );
    html
}

/// Cells that differ in wrong blame only.
fn groups(cells: &[CellResult]) -> impl Iterator<Item = &[CellResult]> {
    cells.chunk_by(|left, right| {
        let key = |result: &CellResult| {
            (result.cell.lemons, result.cell.spares, result.cell.false_alarms)
        };
        key(left) == key(right)
    })
}

fn legend(html: &mut String, report: &SweepReport<'_>) {
    html.push_str("<ul class=\"legend\">\n");
    let policies = report.cells.first().map_or(&[][..], |result| &result.policies);
    for (number, summary) in policies.iter().enumerate() {
        let _ = writeln!(
            html,
            "<li><svg viewBox=\"0 0 34 10\" aria-hidden=\"true\"><path class=\"line s{}\" \
             d=\"M1 5L33 5\"/></svg>{}</li>",
            number % COLOUR_COUNT,
            summary.policy,
        );
    }
    html.push_str(
        "</ul>\n<p class=\"note\">Lines are means over the seeds, the pale bands from minimum to \
         maximum. Colours repeat after eight policies.</p>\n",
    );
}

fn chart(number: usize, cells: &[CellResult]) -> String {
    let Some(first) = cells.first() else { return String::new() };
    let point = |result: &CellResult, summary: &Summary| {
        let lost = summary.lost_gpu_hours;
        let thousands = |hours: f64| hours / 1000.0;
        BandPoint {
            at: result.cell.wrong_blame * 100.0,
            mean: thousands(lost.mean),
            least: thousands(lost.min),
            most: thousands(lost.max),
        }
    };
    let line = |(index, summary): (usize, &Summary)| {
        // A mean over the few runs that ended would compare nothing.
        let of = |result: &CellResult| {
            result.policies.get(index).filter(|it| it.unfinished == 0).map(|it| point(result, it))
        };
        CurveLine {
            colour: index % COLOUR_COUNT,
            name: summary.policy.name(),
            levels: cells.iter().filter_map(of).collect(),
        }
    };
    let lines: Vec<CurveLine> = first.policies.iter().enumerate().map(line).collect();
    let levels = || lines.iter().flat_map(|line| &line.levels);
    let top = levels().map(|level| level.most).fold(1.0, f64::max);
    let right = cells.iter().map(|result| result.cell.wrong_blame * 100.0).fold(1.0, f64::max);
    let cell = &first.cell;
    let title = format!(
        "{} % of servers fail {} times as often, {} spares, {} false alarms a day",
        cell.lemons.share * 100.0,
        cell.lemons.factor,
        cell.spares,
        cell.false_alarms,
    );
    let mean = |line: &CurveLine| {
        let sum: f64 = line.levels.iter().map(|level| level.mean).sum();
        format!("{}: {:.0}. ", line.name, sum / count(line.levels.len().max(1)))
    };
    Chart {
        id: &format!("cell-{number}"),
        title: &title,
        description: lines.iter().map(mean).collect::<String>().trim_end().to_owned(),
        bottom: "wrong blame, % of failures",
        side: "lost GPU-hours, thousands",
        x: (0.0, right),
        y: (0.0, top * 1.05),
        lines,
        guide: Vec::new(),
        marks: Vec::new(),
    }
    .draw()
}

fn figures(html: &mut String, result: &CellResult) {
    let _ = writeln!(
        html,
        "<details>\n<summary>{}</summary>\n<div class=\"wide\" tabindex=\"0\">\n<table>\n<thead><tr>\
         <th scope=\"col\">Policy</th><th scope=\"col\">ETTR %</th>\
         <th scope=\"col\">Lost GPU-hours</th><th scope=\"col\">Failures</th>\
         <th scope=\"col\">Retired</th><th scope=\"col\">Unfinished runs</th></tr></thead>\n<tbody>",
        Escaped(&table::cell_name(&result.cell)),
    );
    for summary in &result.policies {
        let _ = writeln!(
            html,
            "<tr><th scope=\"row\">{}</th><td>{:.2} <small>± {:.2}</small></td>\
             <td>{:.0} <small>± {:.0}</small></td><td>{:.0}</td><td>{:.0}</td><td>{}</td></tr>",
            summary.policy,
            summary.ettr.mean * 100.0,
            summary.ettr.sd * 100.0,
            summary.lost_gpu_hours.mean,
            summary.lost_gpu_hours.sd,
            summary.failures.mean,
            summary.retired.mean,
            summary.unfinished,
        );
    }
    html.push_str("</tbody>\n</table>\n</div>\n</details>\n");
}
