//! Curves of several seeds become one, with its spread.

use super::input::{Curve, Sample};

/// Mean, minimum and maximum of several curves at one position, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BandPoint {
    pub(crate) at: f64,
    pub(crate) mean: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// The quantity along the horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum XAxis {
    /// Wanted GPUs, in percent of all GPUs.
    Demand,
    /// Hours since the first event.
    Time,
}

/// The quantity along the vertical axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum YValue {
    Wanted,
    Allocated,
    Fragmentation,
}

/// Positions of a curve along the horizontal axis.
const CURVE_STEPS: u32 = 260;

/// The curves of one policy as one. It ends where the first of them ends: a mean of fewer and fewer
/// runs would jump.
pub(super) fn mean(curves: &[&Curve], x_axis: XAxis, value: YValue) -> Vec<BandPoint> {
    let start = first_time(curves);
    let lines: Vec<Vec<(f64, f64)>> =
        curves.iter().map(|curve| line(curve, x_axis, value, start)).collect();
    let (mut from, mut to) = (f64::NEG_INFINITY, f64::INFINITY);
    for line in &lines {
        let (Some(first), Some(last)) = (line.first(), line.last()) else { return Vec::new() };
        (from, to) = (from.max(first.0), to.min(last.0));
    }
    if lines.is_empty() || to <= from {
        return Vec::new();
    }
    let step = (to - from) / f64::from(CURVE_STEPS);
    (0..=CURVE_STEPS).map(|number| level(&lines, from + step * f64::from(number))).collect()
}

fn level(lines: &[Vec<(f64, f64)>], at: f64) -> BandPoint {
    let (mut sum, mut count) = (0.0, 0.0);
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    for line in lines {
        let value = value_at(line, at);
        (sum, count) = (sum + value, count + 1.0);
        (least, most) = (least.min(value), most.max(value));
    }
    BandPoint { at, mean: sum / count, least, most }
}

/// Between two points as the crow flies.
fn value_at(line: &[(f64, f64)], at: f64) -> f64 {
    let next = line.partition_point(|(place, _)| *place < at);
    match (next.checked_sub(1).and_then(|last| line.get(last)), line.get(next)) {
        (Some(last), Some(next)) if next.0 > last.0 => {
            last.1 + (next.1 - last.1) * (at - last.0) / (next.0 - last.0)
        }
        (_, Some(point)) | (Some(point), None) => point.1,
        (None, None) => 0.0,
    }
}

/// Seconds at which the first curve starts.
fn first_time(curves: &[&Curve]) -> f64 {
    let times = curves.iter().filter_map(|curve| curve.samples.first()?.time_s);
    times.reduce(f64::min).unwrap_or_default()
}

fn line(curve: &Curve, x_axis: XAxis, value: YValue, start: f64) -> Vec<(f64, f64)> {
    let point = |sample: &Sample| {
        let at = match x_axis {
            XAxis::Demand => sample.wanted * 100.0,
            XAxis::Time => (sample.time_s? - start) / 3600.0,
        };
        let value = match value {
            YValue::Wanted => Some(sample.wanted),
            YValue::Allocated => Some(sample.allocated),
            YValue::Fragmentation => sample.fragmentation,
        };
        Some((at, value? * 100.0)).filter(|(at, value)| at.is_finite() && value.is_finite())
    };
    let mut line: Vec<(f64, f64)> = Vec::new();
    if x_axis == XAxis::Demand && value != YValue::Fragmentation {
        line.push((0.0, 0.0));
    }
    for point in curve.samples.iter().filter_map(point) {
        // Without departures, the demand never falls. The last point may repeat the previous one.
        if line.last().is_none_or(|last| point.0 > last.0) {
            line.push(point);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(f64, f64)]) -> Curve {
        let sample = |(wanted, allocated): &(f64, f64)| Sample {
            wanted: *wanted,
            allocated: *allocated,
            ..Sample::default()
        };
        Curve { samples: points.iter().map(sample).collect(), ..Curve::default() }
    }

    fn near(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-9
    }

    #[test]
    fn seeds_become_a_mean_with_its_spread() {
        let (long, short) = (curve(&[(0.5, 0.5), (1.3, 0.9)]), curve(&[(0.5, 0.4), (1.0, 0.8)]));
        let mean = mean(&[&long, &short], XAxis::Demand, YValue::Allocated);
        let (first, last) = (mean[0], mean[mean.len() - 1]);
        assert!(near(first.at, 0.0) && near(first.mean, 0.0));
        // The shorter one ends at 100 %, where the longer one is at 50 + 40 * 50/80 = 75 %.
        assert!(
            near(last.at, 100.0) && near(last.most, 80.0) && near(last.least, 75.0),
            "{last:?}"
        );
        assert!(near(last.mean, 77.5));
    }

    #[test]
    fn curves_without_points_are_no_curve() {
        assert_eq!(mean(&[], XAxis::Demand, YValue::Allocated), []);
        assert_eq!(mean(&[&curve(&[])], XAxis::Time, YValue::Allocated), []);
        let flat = curve(&[(0.5, 0.5), (0.6, 0.6)]);
        assert_eq!(mean(&[&flat], XAxis::Demand, YValue::Fragmentation), []);
        assert_eq!(mean(&[&flat], XAxis::Time, YValue::Allocated), [], "it has no times");
    }
}
