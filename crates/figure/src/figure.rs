//! A measured figure, its goal, and how a run is reported.

use octavo_term::TextTable;
use serde::Serialize;

/// The goal that a figure's samples are compared with.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// The compared value has to be below.
    Below(f64),
    /// The compared value has to be above.
    Above(f64),
    /// The compared value has to be exactly this.
    Exactly(f64),
    /// Reported for the record.
    None,
}

/// One line of a report.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// The measured quantity.
    pub what: String,
    /// Unit of the values.
    pub unit: &'static str,
    /// Number of samples.
    pub n: usize,
    /// Median of the samples, which is compared with the goal.
    pub median: f64,
    /// Smallest sample.
    pub min: f64,
    /// Largest sample.
    pub max: f64,
    /// The goal in words: `< 250`.
    pub goal: Option<String>,
    /// Whether the goal is met; absent without a goal.
    pub met: Option<bool>,
}

/// A whole run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Name of the benchmark.
    pub name: String,
    /// Commit that was measured; `-dirty` is appended when files were changed.
    pub commit: String,
    /// Machine class: cores, processor, memory, kernel.
    pub machine: String,
    /// The figures.
    pub figures: Vec<Figure>,
}

impl Figure {
    /// A figure over `samples`, whose median is compared with the goal.
    pub fn new(
        what: impl Into<String>,
        unit: &'static str,
        samples: &[f64],
        goal: Goal,
    ) -> anyhow::Result<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(min), Some(max), Some(median)) =
            (sorted.first(), sorted.last(), percentile(&sorted, 50.0))
        else {
            anyhow::bail!("nothing was measured");
        };
        let (goal, met) = goal.compare(median);
        Ok(Self {
            what: what.into(),
            unit,
            n: sorted.len(),
            median,
            min: *min,
            max: *max,
            goal,
            met,
        })
    }
}

impl Figure {
    /// A line with the reason for a missing figure. `met` is `Some(false)` if the figure is
    /// required.
    pub fn absent(what: impl Into<String>, met: Option<bool>) -> Self {
        let none = f64::NAN;
        Self {
            what: what.into(),
            unit: "",
            n: 0,
            median: none,
            min: none,
            max: none,
            goal: None,
            met,
        }
    }
}

impl Goal {
    fn compare(self, value: f64) -> (Option<String>, Option<bool>) {
        match self {
            Self::Below(limit) => (Some(format!("< {limit}")), Some(value < limit)),
            Self::Above(limit) => (Some(format!("> {limit}")), Some(value > limit)),
            #[expect(clippy::float_cmp, reason = "counts are whole numbers, exact in f64")]
            Self::Exactly(wanted) => (Some(format!("= {wanted}")), Some(value == wanted)),
            Self::None => (None, None),
        }
    }
}

/// The nearest-rank percentile of sorted samples; `None` without samples.
pub fn percentile(sorted: &[f64], percent: f64) -> Option<f64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "sample counts are small and the rank is not negative"
    )]
    let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

impl Report {
    /// The report as a text table.
    pub fn table(&self) -> String {
        let header = ["FIGURE", "UNIT", "N", "MEDIAN", "MIN", "MAX", "GOAL", "MET"];
        let mut table = TextTable::new(&header);
        for figure in &self.figures {
            table.plain([
                figure.what.clone(),
                figure.unit.to_owned(),
                figure.n.to_string(),
                number(figure.median),
                number(figure.min),
                number(figure.max),
                figure.goal.clone().unwrap_or_default(),
                figure.met.map_or("", |met| if met { "yes" } else { "NO" }).to_owned(),
            ]);
        }
        format!("{} at {} on {}\n{}", self.name, self.commit, self.machine, table.plain_text())
    }
}

fn number(value: f64) -> String {
    if value.is_nan() {
        return "-".to_owned();
    }
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_rank() {
        let samples: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&samples, 50.0), Some(50.0));
        assert_eq!(percentile(&samples, 99.0), Some(99.0));
        assert_eq!(percentile(&[], 50.0), None);
    }

    #[test]
    fn the_goal_is_compared_with_the_median() {
        let figure = Figure::new("x", "ms", &[1.0, 2.0, 90.0], Goal::Below(3.0)).unwrap();
        assert_eq!((figure.median, figure.met), (2.0, Some(true)));
        let figure = Figure::new("x", "ms", &[4.0], Goal::Below(3.0)).unwrap();
        assert_eq!(figure.met, Some(false));
    }
}
