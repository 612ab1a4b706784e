//! The page.

use std::fmt::Write as _;

use super::chart::{Chart, CurveLine, Mark};
use super::curves::{self, BandPoint, XAxis, YValue};
use super::escape::Escaped;
use super::input::{Curve, Input, SavedPolicy};
use super::tables;

pub(crate) const STYLE: &str = include_str!("../../assets/report.css");

/// Colours of the style sheet; further policies reuse them.
pub(crate) const COLOUR_COUNT: usize = 8;

/// Demand of which the last part is shown larger, in points.
const ZOOM_POINTS: f64 = 20.0;

/// The page as HTML.
pub fn page(input: &Input) -> String {
    let saved = &input.saved;
    let title = format!("Replay of {}", file_name(&saved.pods_file));
    let title = Escaped(&title);
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n",
    );
    let _ = writeln!(html, "<p>{}</p>", summary(input));
    if saved.runs.iter().any(|run| !run.valid) {
        html.push_str(
            "<p class=\"wrong\" role=\"alert\">At least one run is invalid: its figures prove \
             nothing. See “Each run” below.</p>\n",
        );
    }
    html.push_str("<h2>Curves</h2>\n");
    if input.curves.is_empty() {
        html.push_str("<p>The runs were saved without their curves.</p>\n");
    } else {
        legend(&mut html, input);
        html.push_str("<div class=\"charts\">\n");
        for chart in charts(input) {
            html.push_str(&chart.draw());
        }
        html.push_str("</div>\n");
    }
    html.push_str("<h2>Figures</h2>\n");
    html.push_str(&tables::figures(input));
    html.push_str(&tables::classes(input));
    html.push_str("<details>\n<summary>Each run</summary>\n");
    html.push_str(&tables::runs(input));
    html.push_str("</details>\n");
    html.push_str(DEFINITIONS);
    made_from(&mut html, input);
    html.push_str("</main>\n</body>\n</html>\n");
    html
}

const DEFINITIONS: &str = "\
<details>
<summary>Definitions</summary>
<dl>
<dt>Allocated</dt><dd>Allocated GPUs after the last arrival, as a ratio of all GPUs; parts count as parts.</dd>
<dt>By table rule</dt><dd>Mean allocation over all arrivals at which the demand, rounded to a whole percent, is the
target. The tables of Weng et al. (USENIX ATC 2023) use this rule, and their means are shown beside it.</dd>
<dt>First skip</dt><dd>Demand at which the first GPU pod without a named model was skipped.</dd>
<dt>Allocated at 90 %</dt><dd>Allocated GPUs when the demand first reached 90 %.</dd>
<dt>GPU time given</dt><dd>GPU-seconds given, as a ratio of those requested. Skipped pods lose theirs.</dd>
<dt>Fragments</dt><dd>Free GPUs that a typical pod of the list cannot use, as a ratio of all free GPUs.</dd>
<dt>Decision</dt><dd>Time for one pod, including the update of the state.</dd>
<dt>Refused</dt><dd>Pods that were skipped although they fit a node.</dd>
<dt>Valid</dt><dd>An independent validator replayed all placements and found no violation.</dd>
</dl>
</details>
";

/// The policy as people know it: Octavo's may know the list beforehand.
pub(super) fn label(policy: &str, popularity: Option<&str>) -> String {
    match popularity {
        Some("known") if policy == "octavo" => "octavo (known)".to_owned(),
        _ => policy.to_owned(),
    }
}

fn summary(input: &Input) -> String {
    let saved = &input.saved;
    let Some(run) = saved.runs.first() else { return String::new() };
    let mut text = format!("{} nodes with {} GPUs; {} pods", run.nodes, run.gpus, run.pods);
    if saved.runs.iter().any(|other| other.pods != run.pods) {
        text.push_str(", and about as many with other seeds");
    }
    let _ = match saved.order.as_str() {
        "shuffled" => write!(text, " in an order shuffled by the seed"),
        "created" => write!(text, " in creation order"),
        _ => write!(text, " in the order of the list"),
    };
    if let Some(inflate) = saved.inflate {
        let _ = write!(text, ", tuned to a demand of {:.0} % of the GPUs", inflate * 100.0);
    }
    text.push_str(if saved.departures {
        ". Pods leave at their times; skipped pods are lost and never wait."
    } else {
        ". Each is placed or skipped on arrival; no pod leaves."
    });
    text
}

fn legend(html: &mut String, input: &Input) {
    html.push_str("<ul class=\"legend\">\n");
    for (colour, policy) in colours(&input.saved.policies) {
        let _ = writeln!(
            html,
            "<li><svg viewBox=\"0 0 34 10\" aria-hidden=\"true\"><path class=\"line s{colour}\" \
             d=\"M1 5L33 5\"/></svg>{}</li>",
            Escaped(&label(&policy.policy, policy.popularity.as_deref())),
        );
    }
    let has_marks = input.saved.policies.iter().any(|policy| policy.published.is_some());
    html.push_str("<li><svg viewBox=\"0 0 34 10\" aria-hidden=\"true\"><path class=\"guide\" d=\"M1 5L33 5\"/></svg>demand</li>\n");
    if has_marks {
        html.push_str("<li><svg viewBox=\"0 0 34 10\" aria-hidden=\"true\"><circle class=\"mark\" cx=\"17\" cy=\"5\" r=\"4\"/></svg>published mean</li>\n");
    }
    html.push_str("</ul>\n<p class=\"note\">Lines are means over the seeds, the pale bands from minimum to maximum.</p>\n");
}

fn colours(policies: &[SavedPolicy]) -> impl Iterator<Item = (usize, &SavedPolicy)> {
    policies.iter().enumerate().map(|(number, policy)| (number % COLOUR_COUNT, policy))
}

fn charts(input: &Input) -> Vec<Chart<'static>> {
    let x_axis = if input.saved.departures { XAxis::Time } else { XAxis::Demand };
    let lines = |value| -> Vec<CurveLine> {
        colours(&input.saved.policies)
            .map(|(colour, policy)| CurveLine {
                colour,
                name: label(&policy.policy, policy.popularity.as_deref()),
                levels: curves::mean(&of_policy(&input.curves, policy), x_axis, value),
            })
            .filter(|line| !line.levels.is_empty())
            .collect()
    };
    let (bottom, side) = match x_axis {
        XAxis::Demand => ("demand, % of all GPUs", "allocated GPUs, %"),
        XAxis::Time => ("hours", "allocated GPUs, %"),
    };
    let allocated = lines(YValue::Allocated);
    let Some((from, to)) = span(&allocated) else { return Vec::new() };
    // Curves end a little before the demand that the list was brought to.
    let target = input.saved.inflate.filter(|_| x_axis == XAxis::Demand).unwrap_or_default();
    let x = (from, to.max(target * 100.0));
    let guide = guide(input, x_axis, x);
    let most = highest(&allocated).max(100.0);
    let mut charts = vec![Chart {
        id: "given",
        title: "Allocated GPUs",
        description: described(&allocated, x_axis),
        bottom,
        side,
        x,
        y: (0.0, most),
        lines: allocated,
        guide: guide.clone(),
        marks: marks(input, x_axis),
    }];
    if x_axis == XAxis::Demand && x.1 > ZOOM_POINTS {
        let zoomed = lines(YValue::Allocated);
        let x = (x.1 - ZOOM_POINTS, x.1);
        let y = window(&zoomed, x);
        charts.push(Chart {
            id: "zoom",
            title: "The last 20 points, enlarged",
            description: described(&zoomed, x_axis),
            bottom,
            side,
            x,
            y,
            lines: zoomed,
            guide: guide.into_iter().filter(|(_, value)| *value <= y.1).collect(),
            marks: marks(input, x_axis),
        });
    }
    let fragments = lines(YValue::Fragmentation);
    if !fragments.is_empty() {
        let top = (highest(&fragments) / 10.0).ceil() * 10.0;
        charts.push(Chart {
            id: "fragments",
            title: "Free GPUs that are fragments",
            description: described(&fragments, x_axis),
            bottom,
            side: "fragments, % of free GPUs",
            x: (0.0, x.1),
            y: (0.0, top.max(10.0)),
            lines: fragments,
            guide: Vec::new(),
            marks: Vec::new(),
        });
    }
    charts
}

fn of_policy<'a>(curves: &'a [Curve], policy: &SavedPolicy) -> Vec<&'a Curve> {
    let knows = policy.popularity.as_deref().unwrap_or_default();
    let is_of_policy = |curve: &&Curve| curve.policy == policy.policy && curve.popularity == knows;
    curves.iter().filter(is_of_policy).collect()
}

/// The best possible allocation: the demand, up to all GPUs.
fn guide(input: &Input, x_axis: XAxis, (from, to): (f64, f64)) -> Vec<(f64, f64)> {
    match x_axis {
        XAxis::Demand if to > 100.0 => vec![(from, from), (100.0, 100.0), (to, 100.0)],
        XAxis::Demand => vec![(from, from), (to, to)],
        // All policies have the same demand for one seed.
        XAxis::Time => {
            let Some(policy) = input.saved.policies.first() else { return Vec::new() };
            let wanted = curves::mean(&of_policy(&input.curves, policy), x_axis, YValue::Wanted);
            wanted.iter().map(|level| (level.at, level.mean.min(100.0))).collect()
        }
    }
}

fn marks(input: &Input, x_axis: XAxis) -> Vec<Mark> {
    let target = input.saved.inflate.filter(|_| x_axis == XAxis::Demand);
    let mark = |(colour, policy): (usize, &SavedPolicy)| {
        let (target, mean) = target.zip(policy.published)?;
        let name = label(&policy.policy, policy.popularity.as_deref());
        let name = format!("{name}, published: {:.2} %", mean * 100.0);
        Some(Mark { colour, name, at: (target * 100.0, mean * 100.0) })
    };
    colours(&input.saved.policies).filter_map(mark).collect()
}

fn span(lines: &[CurveLine]) -> Option<(f64, f64)> {
    let ends = |line: &CurveLine| Some((line.levels.first()?.at, line.levels.last()?.at));
    let ends = lines.iter().filter_map(ends);
    ends.reduce(|left, right| (left.0.min(right.0), left.1.max(right.1)))
}

fn highest(lines: &[CurveLine]) -> f64 {
    let levels = lines.iter().flat_map(|line| &line.levels);
    levels.map(|level| level.most).fold(0.0, f64::max)
}

/// From a little below the lowest to a little above the highest within a part of the curve.
fn window(lines: &[CurveLine], (from, to): (f64, f64)) -> (f64, f64) {
    let inside = |level: &&BandPoint| (from..=to).contains(&level.at);
    let levels = || lines.iter().flat_map(|line| &line.levels).filter(inside);
    let least = levels().map(|level| level.least).fold(100.0, f64::min);
    let most = levels().map(|level| level.most).fold(0.0, f64::max);
    if most <= least {
        return (least - 1.0, least + 1.0);
    }
    let air = ((most - least) * 0.06).max(0.2);
    (least - air, most + air)
}

/// The curves in words: where each ends.
fn described(lines: &[CurveLine], x_axis: XAxis) -> String {
    let mut text = String::new();
    for line in lines {
        if let Some(last) = line.levels.last() {
            let at = match x_axis {
                XAxis::Demand => format!("{:.0} % demand", last.at),
                XAxis::Time => format!("{:.1} hours", last.at),
            };
            let _ = write!(text, "{}: {:.2} % at {at}. ", line.name, last.mean);
        }
    }
    text.trim_end().to_owned()
}

fn made_from(html: &mut String, input: &Input) {
    let saved = &input.saved;
    let mut seeds: Vec<i64> = saved.runs.iter().map(|run| run.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let seeds: Vec<_> = seeds.iter().map(i64::to_string).collect();
    // A line feed within quotes is part of the command: it stays one, so that a copy of it works.
    let lines = input.command.split('\n').map(|line| Escaped(line).to_string());
    let command = lines.collect::<Vec<_>>().join("\n");
    let _ = writeln!(
        html,
        "<h2>Inputs</h2>\n<dl>\n<dt>Node list</dt><dd><code>{}</code></dd>\n\
         <dt>Pod list</dt><dd><code>{}</code></dd>\n<dt>Seeds</dt><dd>{}</dd>\n\
         <dt>Command</dt><dd><code class=\"typed\">{command}</code></dd>\n\
         <dt>Program</dt><dd>octavo {}</dd>\n</dl>",
        Escaped(&saved.nodes_file),
        Escaped(&saved.pods_file),
        Escaped(&seeds.join(", ")),
        env!("CARGO_PKG_VERSION"),
    );
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
