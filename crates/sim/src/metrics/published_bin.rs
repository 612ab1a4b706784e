use super::float;

/// The rule of the published tables (the authors' `experiments/analysis` scripts). Each arrival's
/// demand is rounded to a whole percent of the GPUs, half to even. The allocation at that moment is
/// rounded to a hundredth of a percent. A table's figure "at 130" is the mean over all arrivals
/// whose demand rounds to 130. Without such arrivals, those one percent lower and higher count too.
///
/// No pod leaves in the published runs, so the mean is slightly below the final state.
#[derive(Clone, Debug)]
pub(super) struct PublishedBin {
    target: f64,
    exact: Mean,
    near: Mean,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    count: u64,
}

impl PublishedBin {
    /// For a target demand in parts of the GPUs: 1.3 in the paper.
    pub(super) fn at(target: f64) -> Self {
        let target = (target * 100.0).round_ties_even();
        Self { target, exact: Mean::default(), near: Mean::default() }
    }

    /// Records an arrival: thousandths of GPUs that are wanted and allocated after it.
    pub(super) fn note(&mut self, arrived: u64, used: u64, gpus: u64) {
        let percent = |milli: u64| float(milli) / float(gpus) / 10.0;
        let off = (percent(arrived).round_ties_even() - self.target).abs();
        let used = (percent(used) * 100.0).round_ties_even() / 100.0;
        if off < 0.5 {
            self.exact.add(used);
        }
        if off < 1.5 {
            self.near.add(used);
        }
    }

    /// Part of 1, to four decimals as the tables have it.
    pub(super) fn finish(&self) -> Option<f64> {
        let percent = self.exact.value().or_else(|| self.near.value())?;
        Some((percent * 100.0).round_ties_even() / 10_000.0)
    }
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    fn value(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / float(self.count))
    }
}
