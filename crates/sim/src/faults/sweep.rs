//! The same study with other bad servers, wrong blame, spares and false alarms.

use std::num::NonZeroUsize;

use serde::Serialize;

use super::policy::Policy;
use super::runs::{self, Plan};
use super::study::{Lemons, Study, StudyError};
use super::summary::{self, Summary};

/// Mixtures of good and bad servers that are in use: Meta's RSC, 504 B200 GPUs, AIReSim.
pub const LEMONS: [Lemons; 3] = [
    Lemons { share: 0.012, factor: 200.0 },
    Lemons { share: 0.05, factor: 20.0 },
    Lemons { share: 0.15, factor: 6.0 },
];

/// The values of each axis of a sweep.
#[derive(Clone, Debug)]
pub struct Axes {
    /// Shares of failures for which another server is blamed.
    pub wrong_blame: Vec<f64>,
    /// Mixtures of good and bad servers. The mean rate of failures stays.
    pub lemons: Vec<Lemons>,
    /// Spares of the fleet.
    pub spares: Vec<u32>,
    /// False alarms per server and day.
    pub false_alarms: Vec<f64>,
}

/// One combination of values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// The share of failures for which another server is blamed.
    pub wrong_blame: f64,
    /// The good and bad servers.
    pub lemons: Lemons,
    /// Spares of the fleet.
    pub spares: u32,
    /// False alarms per server and day.
    pub false_alarms: f64,
}

/// What came of a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellResult {
    /// The cell.
    #[serde(flatten)]
    pub cell: Cell,
    /// Each policy.
    pub policies: Vec<Summary>,
    /// The best policy apart from the oracle.
    pub best: Option<Policy>,
}

impl Axes {
    /// All cells; wrong blame varies fastest.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for lemons in &self.lemons {
            for spares in &self.spares {
                for false_alarms in &self.false_alarms {
                    cells.extend(self.wrong_blame.iter().map(|wrong_blame| Cell {
                        wrong_blame: *wrong_blame,
                        lemons: *lemons,
                        spares: *spares,
                        false_alarms: *false_alarms,
                    }));
                }
            }
        }
        cells
    }
}

impl Cell {
    /// The study of the cell.
    fn study(&self, base: &Study) -> Study {
        let mut study = base.clone().with_lemons(self.lemons);
        study.failures.wrong_blame = self.wrong_blame;
        study.failures.false_alarms_per_day = self.false_alarms;
        study.fleet.spares = self.spares;
        study
    }
}

/// Runs all policies with all seeds in all cells.
pub fn run(
    base: &Study,
    axes: &Axes,
    policies: &[Policy],
    seeds: &[i64],
    jobs: NonZeroUsize,
) -> Result<Vec<CellResult>, StudyError> {
    let cells = axes.cells();
    let studies: Vec<Study> = cells.iter().map(|cell| cell.study(base)).collect();
    studies.iter().try_for_each(Study::check)?;
    let plan = |study| policies.iter().map(move |policy| Plan { study, policy: *policy });
    let plans: Vec<Plan<'_>> = studies.iter().flat_map(plan).collect();
    let outcomes = runs::run(&plans, seeds, jobs);
    let mut summaries = plans
        .iter()
        .zip(&outcomes)
        .map(|(plan, outcomes)| Summary::of(plan.policy, plan.study, outcomes));
    let result = |cell| {
        let policies: Vec<Summary> = summaries.by_ref().take(policies.len()).collect();
        let best = summary::best(&policies).map(|best| best.policy);
        CellResult { cell, policies, best }
    };
    Ok(cells.into_iter().map(result).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::span::Span;
    use crate::faults::study::Length;

    #[test]
    fn every_cell_has_its_study_and_all_policies() {
        let mut base = Study::default();
        base.job.length = Length::Elapsed(Span::days(2));
        let axes = Axes {
            wrong_blame: vec![0.0, 0.5],
            lemons: LEMONS.to_vec(),
            spares: vec![0, 40],
            false_alarms: vec![0.0, 0.001],
        };
        let policies = [Policy::RequeueAll, Policy::Octavo];
        let results = run(&base, &axes, &policies, &[1, 2], NonZeroUsize::MIN).unwrap();
        assert_eq!(results.len(), 24);
        let last = &results[23];
        assert_eq!(last.cell.lemons, LEMONS[2]);
        assert!(last.cell.spares == 40 && last.cell.wrong_blame > 0.4);
        assert_eq!(last.policies.iter().map(|row| row.policy).collect::<Vec<_>>(), policies);
        assert_eq!(last.policies[0].ettr.runs, 2);
        let study = last.cell.study(&base);
        assert_eq!((study.fleet.spares, study.lemons), (40, LEMONS[2]));
    }

    #[test]
    fn a_wrong_value_is_refused() {
        let axes = Axes {
            wrong_blame: vec![2.0],
            lemons: LEMONS.to_vec(),
            spares: vec![0],
            false_alarms: vec![0.0],
        };
        let error = run(&Study::default(), &axes, &[], &[1], NonZeroUsize::MIN).unwrap_err();
        assert!(error.to_string().contains("failures.wrongBlame is 2"), "{error}");
    }
}
