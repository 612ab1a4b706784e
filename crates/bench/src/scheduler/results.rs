//! Measurements by contender, and the figures computed from them.

use std::collections::BTreeMap;

use octavo_figure::{Figure, Goal};

use super::case::Case;
use super::contender::Contender;

/// All turns of a case.
pub(super) struct Results {
    case: Case,
    scale: f64,
    lines: Vec<Line>,
    failures: Vec<(Contender, String)>,
}

/// One turn of one contender.
pub(super) struct Measured {
    contender: Contender,
    turn: u32,
    is_whole: bool,
    samples: Vec<Sample>,
}

/// One quantity of all contenders, in the order of turns.
struct Line {
    what: String,
    unit: &'static str,
    by: BTreeMap<Contender, Vec<Sample>>,
}

#[derive(Clone)]
struct Sample {
    what: String,
    unit: &'static str,
    goal: Goal,
    amount: f64,
    turn: u32,
    /// Whether its turn came to its end.
    is_whole: bool,
}

/// A quantity that contenders are compared by, turn by turn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Compared {
    /// A rate, and the least in percent of raw's, for Octavo.
    Rate { what: &'static str, least_of_raw: f64 },
    /// A time, and Octavo's maximum as a multiple of raw's.
    Time { what: &'static str, most_of_raw: f64 },
}

impl Measured {
    /// An empty record of a turn.
    pub(super) fn new(contender: Contender, turn: u32) -> Self {
        Self { contender, turn, is_whole: true, samples: Vec::new() }
    }

    /// Records that the contender did not finish. Figures with a sample of this turn are marked.
    pub(super) fn mark_unfinished(&mut self) {
        self.is_whole = false;
    }

    /// A sample for the record.
    pub(super) fn add(&mut self, what: impl Into<String>, unit: &'static str, amount: f64) {
        self.add_with_goal(what, unit, Goal::None, amount);
    }

    /// A sample of a quantity for which Octavo has a goal.
    pub(super) fn add_with_goal(
        &mut self,
        what: impl Into<String>,
        unit: &'static str,
        goal: Goal,
        amount: f64,
    ) {
        let goal = if self.contender.is_octavo() { goal } else { Goal::None };
        self.push(what.into(), unit, goal, amount);
    }

    /// Adds a sample with a goal for Octavo and for raw. Comparisons are worthless if it is missed.
    pub(super) fn add_with_required_goal(
        &mut self,
        what: impl Into<String>,
        unit: &'static str,
        duty: Goal,
        amount: f64,
    ) {
        let goal = if must_finish(self.contender) { duty } else { Goal::None };
        self.push(what.into(), unit, goal, amount);
    }

    fn push(&mut self, what: String, unit: &'static str, goal: Goal, amount: f64) {
        let sample = Sample { what, unit, goal, amount, turn: self.turn, is_whole: true };
        self.samples.push(sample);
    }
}

/// Contenders whose rates are compared with one another.
const RATIOS_OF_RATES: [(Contender, Contender); 3] = [
    (Contender::Kube, Contender::Octavo),
    (Contender::Kube, Contender::KubeWithClass),
    (Contender::KubeWithClass, Contender::OctavoWithClass),
];

/// Whether a turn of its that fails is a missed goal. kube-scheduler's is for the record.
fn must_finish(contender: Contender) -> bool {
    !contender.is_kube()
}

/// The mark after the contender's name for unfinished turns.
fn unfinished(samples: &[Sample]) -> String {
    match samples.iter().filter(|sample| !sample.is_whole).count() {
        0 => String::new(),
        all if all == samples.len() => " (did not finish)".to_owned(),
        some => format!(" (did not finish in {some} of {} turns)", samples.len()),
    }
}

impl Results {
    pub(super) fn new(case: Case, scale: f64) -> Self {
        Self { case, scale, lines: Vec::new(), failures: Vec::new() }
    }

    /// Keeps the measurements of a turn.
    pub(super) fn keep(&mut self, measured: Measured) {
        for sample in measured.samples {
            let sample = Sample { is_whole: measured.is_whole, ..sample };
            let place = self.lines.iter().position(|line| line.what == sample.what);
            let line = if let Some(place) = place {
                self.lines.get_mut(place)
            } else {
                let (what, unit) = (sample.what.clone(), sample.unit);
                self.lines.push(Line { what, unit, by: BTreeMap::new() });
                self.lines.last_mut()
            };
            if let Some(line) = line {
                line.by.entry(measured.contender).or_default().push(sample);
            }
        }
    }

    /// Keeps why a turn has no figures.
    pub(super) fn failed(&mut self, contender: Contender, error: &anyhow::Error) {
        self.failures.push((contender, format!("{error:#}")));
    }

    /// The quantities that are compared, turn by turn, and their ratios.
    pub(super) fn by_turn(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let list = |amounts: &[f64]| {
            amounts.iter().map(|amount| format!("{amount:.2}")).collect::<Vec<_>>().join(", ")
        };
        for compared in self.case.compared() {
            let (Compared::Rate { what, .. } | Compared::Time { what, .. }) = compared;
            let Some(line) = self.lines.iter().find(|line| line.what == *what) else { continue };
            for (contender, samples) in &line.by {
                let amounts: Vec<f64> = samples.iter().map(|sample| sample.amount).collect();
                let unit = line.unit;
                lines.push(format!("{what}, {unit}, {}: {}", contender.name(), list(&amounts)));
                for base in line.by.keys().filter(|base| *base < contender) {
                    let Some((ratios, ..)) = line.ratios(*base, *contender) else { continue };
                    let base = base.name();
                    lines.push(format!("  times that of {base}: {}", list(&ratios)));
                }
            }
        }
        lines
    }

    /// The figures of the case.
    pub(super) fn figures(&self) -> anyhow::Result<Vec<Figure>> {
        let mut figures = Vec::new();
        let name = self.case.title(self.scale);
        for line in &self.lines {
            for (contender, samples) in &line.by {
                let goal = samples.last().map_or(Goal::None, |sample| sample.goal);
                let what =
                    format!("{name}: {}: {}{}", line.what, contender.name(), unfinished(samples));
                let amounts: Vec<f64> = samples.iter().map(|sample| sample.amount).collect();
                figures.push(Figure::new(what, line.unit, &amounts, goal)?);
            }
        }
        for compared in self.case.compared() {
            figures.extend(self.compare(&name, *compared)?);
        }
        for note in self.case.notes() {
            figures.push(Figure::absent(format!("{name}: {note}"), None));
        }
        for (contender, why) in &self.failures {
            let line = why.lines().next().unwrap_or_default();
            let what = format!("{name}: {} failed: {line}", contender.name());
            let met = must_finish(*contender).then_some(false);
            figures.push(Figure::absent(what, met));
        }
        Ok(figures)
    }

    fn compare(&self, name: &str, compared: Compared) -> anyhow::Result<Vec<Figure>> {
        let (Compared::Rate { what, .. } | Compared::Time { what, .. }) = compared;
        let Some(line) = self.lines.iter().find(|line| line.what == what) else {
            return Ok(Vec::new());
        };
        let mut figures = Vec::new();
        for &contender in line.by.keys().filter(|contender| **contender != Contender::Raw) {
            let Some((ratios, raw, its)) = line.ratios(Contender::Raw, contender) else { continue };
            let is_ours = contender.is_octavo();
            let its = format!("{}{its}", contender.name());
            figures.push(match compared {
                Compared::Rate { least_of_raw, .. } => {
                    let what = format!("{name}: rate, of raw's{raw}: {its}");
                    let percents: Vec<f64> = ratios.iter().map(|ratio| ratio * 100.0).collect();
                    let goal = if is_ours { Goal::Above(least_of_raw) } else { Goal::None };
                    Figure::new(what, "%", &percents, goal)?
                }
                Compared::Time { most_of_raw, .. } => {
                    let what = format!("{name}: {what}, times raw's{raw}: {its}");
                    let goal = if is_ours { Goal::Below(most_of_raw) } else { Goal::None };
                    Figure::new(what, "x", &ratios, goal)?
                }
            });
        }
        let pairs = match compared {
            Compared::Rate { .. } => &RATIOS_OF_RATES[..],
            Compared::Time { .. } => &[],
        };
        for (base, other) in pairs {
            let Some((ratios, of_base, of_other)) = line.ratios(*base, *other) else { continue };
            let (base, other) = (base.name(), other.name());
            let what = format!("{name}: rate, times that of {base}{of_base}: {other}{of_other}");
            figures.push(Figure::new(what, "x", &ratios, Goal::None)?);
        }
        Ok(figures)
    }
}

impl Line {
    /// The ratios of two contenders turn by turn, which were measured within minutes of each other,
    /// and the marks after their names. `None` without a common turn.
    fn ratios(&self, base: Contender, other: Contender) -> Option<(Vec<f64>, String, String)> {
        let of = |contender| self.by.get(&contender).map_or(&[][..], Vec::as_slice);
        let pairs = of(other).iter().filter_map(|its| {
            let bases = of(base).iter().find(|sample| sample.turn == its.turn)?;
            (bases.amount > 0.0).then(|| (bases.clone(), its.clone()))
        });
        let (bases, others): (Vec<Sample>, Vec<Sample>) = pairs.unzip();
        let both = bases.iter().zip(&others);
        let ratios: Vec<f64> = both.map(|(base, other)| other.amount / base.amount).collect();
        (!ratios.is_empty()).then(|| (ratios, unfinished(&bases), unfinished(&others)))
    }
}

#[cfg(test)]
mod tests;
