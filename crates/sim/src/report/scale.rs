//! Axes: positions of values, and round numbers as labels.

/// An axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    pub(super) from: f64,
    pub(super) to: f64,
    /// Places of the two.
    pub(super) start: f64,
    pub(super) end: f64,
}

impl Scale {
    /// The position of a value. Values outside the axis are clamped to its ends.
    pub(super) fn place(&self, value: f64) -> f64 {
        let part = (value - self.from) / (self.to - self.from);
        self.start + part.clamp(0.0, 1.0) * (self.end - self.start)
    }

    pub(super) fn has(&self, value: f64) -> bool {
        (self.from..=self.to).contains(&value)
    }

    /// About `count` round numbers along the axis.
    pub(super) fn ticks(&self, count: f64) -> Vec<f64> {
        let step = round_step((self.to - self.from) / count);
        let mut ticks = Vec::new();
        let mut tick = (self.from / step).ceil() * step;
        while tick <= self.to + step * 1e-6 && ticks.len() < 40 {
            // No minus before zero, and no 0.30000000000000004.
            ticks.push((tick / step).round() * step + 0.0);
            tick += step;
        }
        ticks
    }

    /// How many decimals ticks need.
    pub(super) fn decimals(&self, count: f64) -> usize {
        let step = round_step((self.to - self.from) / count);
        if step >= 1.0 {
            0
        } else if step >= 0.1 {
            1
        } else {
            2
        }
    }
}

/// 1, 2 or 5 times a power of ten, not below `least`.
pub(super) fn round_step(least: f64) -> f64 {
    if !(least > 0.0 && least.is_finite()) {
        return 1.0;
    }
    let mut power = 1.0;
    while power > least {
        power /= 10.0;
    }
    while power * 10.0 <= least {
        power *= 10.0;
    }
    let times = [1.0, 2.0, 5.0, 10.0].into_iter().find(|times| times * power >= least * 0.999);
    times.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "round numbers are exact")]

    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        let axis = |from, to| Scale { from, to, start: 0.0, end: 1.0 };
        assert_eq!(axis(0.0, 130.0).ticks(6.0), [0.0, 50.0, 100.0]);
        assert_eq!(axis(110.0, 130.0).ticks(5.0), [110.0, 115.0, 120.0, 125.0, 130.0]);
        assert_eq!(axis(86.3, 97.1).ticks(6.0), [88.0, 90.0, 92.0, 94.0, 96.0]);
        assert_eq!(axis(0.0, 1.0).ticks(5.0).len(), 6);
        assert!(axis(0.0, 1e-9).ticks(5.0).len() < 40);
        assert_eq!(axis(5.0, 5.0).ticks(5.0), [5.0]);
    }

    #[test]
    fn values_outside_the_axis_are_clamped() {
        let axis = Scale { from: 0.0, to: 10.0, start: 100.0, end: 0.0 };
        assert_eq!(
            [-5.0, 0.0, 5.0, 50.0].map(|value| axis.place(value)),
            [100.0, 100.0, 50.0, 0.0]
        );
    }
}
