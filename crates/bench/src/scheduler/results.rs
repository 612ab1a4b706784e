//! What was measured, by contender, and the figures made of it.

use std::collections::BTreeMap;

use super::Case;
use super::contender::Contender;
use crate::figure::{Figure, Goal};

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
    samples: Vec<Sample>,
}

/// One quantity of all contenders, sample by sample in the order of turns.
struct Line {
    what: String,
    unit: &'static str,
    goal: Goal,
    by: BTreeMap<Contender, Vec<f64>>,
}

struct Sample {
    what: String,
    unit: &'static str,
    goal: Goal,
    amount: f64,
}

/// A quantity that contenders are compared by, turn by turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compared {
    /// The quantity: a time.
    pub(super) what: &'static str,
    /// The least rate in percent of raw's, for Octavo.
    pub(super) least_of_raw: Option<f64>,
    /// The longest time as a multiple of raw's, for Octavo.
    pub(super) most_of_raw: Option<f64>,
}

impl Measured {
    /// A place for what a turn measures.
    pub(super) fn new(contender: Contender) -> Self {
        Self { contender, samples: Vec::new() }
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
        self.samples.push(Sample { what: what.into(), unit, goal, amount });
    }
}

impl Results {
    pub(super) fn new(case: Case, scale: f64) -> Self {
        Self { case, scale, lines: Vec::new(), failures: Vec::new() }
    }

    /// Keeps what a turn has measured.
    pub(super) fn keep(&mut self, measured: Measured) {
        for Sample { what, unit, goal, amount } in measured.samples {
            let place = self.lines.iter().position(|line| line.what == what);
            let line = if let Some(place) = place {
                self.lines.get_mut(place)
            } else {
                self.lines.push(Line { what, unit, goal, by: BTreeMap::new() });
                self.lines.last_mut()
            };
            if let Some(line) = line {
                line.by.entry(measured.contender).or_default().push(amount);
            }
        }
    }

    /// Keeps why a turn has no figures.
    pub(super) fn failed(&mut self, contender: Contender, error: &anyhow::Error) {
        self.failures.push((contender, format!("{error:#}")));
    }

    /// The figures of the case.
    pub(super) fn figures(&self) -> anyhow::Result<Vec<Figure>> {
        let mut figures = Vec::new();
        let name = self.case.title(self.scale);
        for line in &self.lines {
            for (contender, samples) in &line.by {
                let goal = if *contender == Contender::Octavo { line.goal } else { Goal::None };
                let what = format!("{name}: {}: {}", line.what, contender.name());
                figures.push(Figure::new(what, line.unit, samples, goal)?);
            }
        }
        for compared in self.case.compared() {
            figures.extend(self.compare(&name, compared)?);
        }
        for note in self.case.notes() {
            figures.push(Figure::absent(format!("{name}: {note}"), None));
        }
        for (contender, why) in &self.failures {
            let line = why.lines().next().unwrap_or_default();
            let what = format!("{name}: {} failed: {line}", contender.name());
            let met = (*contender == Contender::Octavo).then_some(false);
            figures.push(Figure::absent(what, met));
        }
        Ok(figures)
    }

    fn compare(&self, name: &str, compared: &Compared) -> anyhow::Result<Vec<Figure>> {
        let Some(line) = self.lines.iter().find(|line| line.what == compared.what) else {
            return Ok(Vec::new());
        };
        let of = |contender: Contender| line.by.get(&contender).map_or(&[][..], Vec::as_slice);
        let mut figures = Vec::new();
        for contender in [Contender::Kube, Contender::Octavo] {
            let is_ours = contender == Contender::Octavo;
            // Turn by turn: both were measured within a minute or so.
            let pairs = || of(Contender::Raw).iter().zip(of(contender));
            let who = contender.name();
            let rates: Vec<f64> = pairs().map(|(raw, its)| raw / its * 100.0).collect();
            if !rates.is_empty() && compared.most_of_raw.is_none() {
                let goal = match compared.least_of_raw {
                    Some(least) if is_ours => Goal::Above(least),
                    _ => Goal::None,
                };
                let what = format!("{name}: rate, of raw's: {who}");
                figures.push(Figure::new(what, "%", &rates, goal)?);
            }
            if let (Some(most), false) = (compared.most_of_raw, rates.is_empty()) {
                let times: Vec<f64> = pairs().map(|(raw, its)| its / raw).collect();
                let goal = if is_ours { Goal::Below(most) } else { Goal::None };
                let what = format!("{name}: {}, times raw's: {who}", line.what);
                figures.push(Figure::new(what, "x", &times, goal)?);
            }
        }
        let both = of(Contender::Kube).iter().zip(of(Contender::Octavo));
        let faster: Vec<f64> = both.map(|(kube, ours)| kube / ours).collect();
        if !faster.is_empty() {
            let what = format!("{name}: rate, times kube-scheduler's: octavo");
            figures.push(Figure::new(what, "x", &faster, Goal::None)?);
        }
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: &str = "first create to all bound";

    fn results(samples: &[(Contender, f64)]) -> Vec<Figure> {
        let mut results = Results::new(Case::Gpus, 1.0);
        for (contender, value) in samples {
            let mut measured = Measured::new(*contender);
            measured.add(BOUND, "s", *value);
            results.keep(measured);
        }
        results.figures().unwrap()
    }

    fn find<'a>(figures: &'a [Figure], end: &str) -> &'a Figure {
        figures.iter().find(|figure| figure.what.ends_with(end)).unwrap()
    }

    #[test]
    fn rates_are_compared_turn_by_turn() {
        let figures = results(&[
            (Contender::Raw, 10.0),
            (Contender::Octavo, 12.5),
            (Contender::Raw, 20.0),
            (Contender::Octavo, 20.0),
        ]);
        let rate = find(&figures, "rate, of raw's: octavo");
        assert_eq!((rate.min, rate.max, rate.n), (80.0, 100.0, 2));
        assert_eq!(rate.met, Some(false));
        let figures = results(&[(Contender::Kube, 30.0), (Contender::Octavo, 10.0)]);
        let faster = find(&figures, "times kube-scheduler's: octavo");
        assert_eq!((faster.median, faster.n), (3.0, 1));
    }

    #[test]
    fn a_turn_that_failed_is_a_line_and_a_missed_goal_if_it_was_ours() {
        let mut results = Results::new(Case::Gang, 1.0);
        results.failed(Contender::Octavo, &anyhow::anyhow!("no pod was bound"));
        results.failed(Contender::Raw, &anyhow::anyhow!("no API server"));
        let figures = results.figures().unwrap();
        let of = |text: &str| figures.iter().find(|figure| figure.what.contains(text)).unwrap();
        assert_eq!(of("octavo failed: no pod was bound").met, Some(false));
        assert_eq!(of("raw failed").met, None);
        assert_eq!(of("kube-scheduler has no gangs").n, 0);
    }
}
