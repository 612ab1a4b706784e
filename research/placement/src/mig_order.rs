//! The effect of the order of MIG placements. Requests come and go, served first fit as by
//! Kubernetes' allocator. This is a simulation without a cluster.

use octavo_agent::devices::order::{ListOrder, SimulationResult, Step, simulate};
use octavo_figure::{Figure, Goal};
use octavo_gpu::mig::{MigPlacement, MigProfile, MigShape, MigVariant};

/// Sequences in one sample, and samples.
const SEQUENCES: u64 = 100;
const SAMPLES: u64 = 20;
/// Requests in a sequence for each GPU.
const REQUESTS: usize = 60;

/// Name, id, NVML's number, compute slices, engines, memory in MiB, first slices, size.
type Row = (&'static str, u32, u32, u32, [u32; 5], u64, &'static [u32], u32);

/// An H100 80 GB: geometry and engines (multiprocessors, copy, decoders, JPEG, optical flow) as
/// NVIDIA's MIG user guide lists them, memory as an A100 80 GB has it.
const H100: [Row; 7] = [
    ("1g.10gb", 19, 0, 1, [16, 1, 1, 1, 0], 9856, &[0, 1, 2, 3, 4, 5, 6], 1),
    ("1g.10gb+me", 20, 7, 1, [16, 1, 1, 1, 1], 9856, &[0, 1, 2, 3, 4, 5, 6], 1),
    ("1g.20gb", 15, 9, 1, [26, 1, 1, 1, 0], 19968, &[0, 2, 4, 6], 2),
    ("2g.20gb", 14, 1, 2, [32, 2, 2, 2, 0], 19968, &[0, 2, 4], 2),
    ("3g.40gb", 9, 2, 3, [60, 3, 3, 3, 0], 40192, &[0, 4], 4),
    ("4g.40gb", 5, 3, 4, [64, 4, 4, 4, 0], 40192, &[0], 4),
    ("7g.80gb", 0, 4, 7, [132, 8, 7, 7, 1], 80384, &[0], 8),
];

/// Weights of the profiles above, and for how many requests a device is kept, at least and at most.
struct Mix {
    name: &'static str,
    weights: [u64; 7],
    kept: (u64, u64),
}

/// Small ones alone, as notebooks and small models are; all sizes; and mostly half GPUs. Each is
/// kept so long that a GPU is about half full.
const MIXES: [Mix; 3] = [
    Mix { name: "small", weights: [6, 0, 1, 2, 0, 0, 0], kept: (2, 6) },
    Mix { name: "mixed", weights: [4, 1, 2, 3, 2, 1, 1], kept: (1, 3) },
    Mix { name: "large", weights: [2, 0, 0, 1, 3, 2, 1], kept: (1, 3) },
];

/// The compared orders.
const ORDERS: [(ListOrder, &str); 3] = [
    (ListOrder::LeastHarm, "least harm"),
    (ListOrder::Name, "by name"),
    (ListOrder::Relisted, "relisted"),
];

/// Profiles whose fit is reported: index in the table, name, and the allowed loss against the order
/// by name, in points.
const LARGE: [(usize, &str, Option<f64>); 3] =
    [(4, "3g", None), (5, "4g", Some(0.0)), (6, "7g", None)];

/// Runs all sequences in all orders.
pub fn run() -> anyhow::Result<Vec<Figure>> {
    let profiles: Vec<_> = H100.iter().map(profile).collect();
    let mut figures = Vec::new();
    for gpus in [1, 8] {
        for mix in &MIXES {
            measure(&profiles, gpus, mix, &mut figures)?;
        }
    }
    Ok(figures)
}

fn measure(
    profiles: &[MigProfile],
    gpus: usize,
    mix: &Mix,
    figures: &mut Vec<Figure>,
) -> anyhow::Result<()> {
    let outcomes: Vec<Vec<SimulationResult>> = ORDERS
        .iter()
        .map(|(order, _)| {
            (0..SAMPLES)
                .map(|sample| {
                    let mut sum = SimulationResult {
                        fits: vec![0; profiles.len()],
                        ..SimulationResult::default()
                    };
                    for seed in 0..SEQUENCES {
                        let sequence = sequence(mix, gpus, sample * SEQUENCES + seed);
                        add(&mut sum, &simulate(profiles, gpus, *order, &sequence));
                    }
                    sum
                })
                .collect()
        })
        .collect();
    let what = format!("{gpus} GPU, {}", mix.name);
    let by_name = outcomes.get(1).map(Vec::as_slice).unwrap_or_default();
    for (index, (order, name)) in ORDERS.iter().enumerate() {
        let samples = outcomes.get(index).map(Vec::as_slice).unwrap_or_default();
        // The published order is the first one. The profile with a single placement per GPU must
        // fit more often, without more refused requests.
        let is_ours = *order == ListOrder::LeastHarm;
        let mut tell = |of: &str, share: &dyn Fn(&SimulationResult) -> f64, slack: Option<f64>| {
            let shares =
                |outcomes: &[SimulationResult]| outcomes.iter().map(share).collect::<Vec<_>>();
            let rival = Figure::new("", "%", &shares(by_name), Goal::None)?.median;
            let goal = match slack {
                Some(slack) if is_ours => Goal::Above(round(rival - slack)),
                _ => Goal::None,
            };
            let what = format!("{what}: {of}, {name}");
            figures.push(Figure::new(what, "%", &shares(samples), goal)?);
            anyhow::Ok(())
        };
        for (profile, short, slack) in LARGE {
            let fits = |one: &SimulationResult| percent(one.fits.get(profile).copied(), one.steps);
            tell(&format!("{short} fits"), &fits, slack)?;
        }
        let given = |one: &SimulationResult| percent(Some(one.given), one.asked);
        tell("requests served", &given, Some(0.5))?;
    }
    Ok(())
}

/// To hundredths, as figures are printed.
fn round(percent: f64) -> f64 {
    (percent * 100.0).round() / 100.0
}

/// Arrivals of a mix with their departures, the same for a seed on every machine.
fn sequence(mix: &Mix, gpus: usize, seed: u64) -> Vec<Step> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let total: u64 = mix.weights.iter().sum();
    let scale = u64::try_from(gpus).unwrap_or(u64::MAX);
    let requests = REQUESTS * gpus;
    let mut leaving: Vec<Vec<usize>> = vec![Vec::new(); requests + 1];
    let mut steps = Vec::new();
    for arrival in 0..requests {
        let departed = leaving.get_mut(arrival).map(std::mem::take).unwrap_or_default();
        steps.extend(departed.into_iter().map(Step::Depart));
        let mut drawn = random.below(total);
        let profile = mix.weights.iter().position(|weight| {
            let is_it = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            is_it
        });
        steps.push(Step::Arrive(profile.unwrap_or(0)));
        let (least, most) = (mix.kept.0 * scale, mix.kept.1 * scale);
        let kept = least + random.below(most - least + 1);
        let until = arrival + usize::try_from(kept).unwrap_or(usize::MAX);
        if let Some(leaving) = leaving.get_mut(until) {
            leaving.push(arrival);
        }
    }
    steps
}

fn add(sum: &mut SimulationResult, one: &SimulationResult) {
    sum.steps += one.steps;
    sum.asked += one.asked;
    sum.given += one.given;
    for (sum, one) in sum.fits.iter_mut().zip(&one.fits) {
        *sum += one;
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of steps are far below 2^52")]
fn percent(part: Option<u64>, whole: u64) -> f64 {
    100.0 * part.unwrap_or(0) as f64 / whole.max(1) as f64
}

fn profile(row: &Row) -> MigProfile {
    let (name, id, number, slices, engines, memory_mib, starts, size) = *row;
    let [multiprocessors, copy_engines, decoders, jpeg_engines, ofa_engines] = engines;
    let variant = if number == 7 { MigVariant::Media } else { MigVariant::Plain };
    MigProfile {
        number,
        id,
        name: name.to_owned(),
        shape: MigShape { compute_slices: slices, gpu_slices: slices, variant },
        memory_mib,
        instances: 1,
        multiprocessors,
        copy_engines,
        decoders,
        encoders: 0,
        jpeg_engines,
        ofa_engines,
        placements: starts.iter().map(|&start| MigPlacement { start, size }).collect(),
    }
}

/// `SplitMix64`: small, and good enough to draw from.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_is_deterministic_and_departures_follow_arrivals() {
        let steps = sequence(&MIXES[1], 2, 7);
        assert_eq!(steps, sequence(&MIXES[1], 2, 7));
        assert_ne!(steps, sequence(&MIXES[1], 2, 8));
        let mut arrived = 0;
        for step in steps {
            match step {
                Step::Arrive(profile) => {
                    assert!(MIXES[1].weights[profile] > 0);
                    arrived += 1;
                }
                Step::Depart(arrival) => assert!(arrival < arrived),
            }
        }
        assert_eq!(arrived, REQUESTS * 2);
    }
}
