//! Measures a list order with a sequence of first-fit requests for MIG devices.

use octavo_gpu::mig::{MigPlacement, MigProfile};

use super::{larger, least_harm};
use crate::devices::names::mig_name;

/// Engines that a profile takes part of.
const ENGINES: usize = 7;

/// List orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListOrder {
    /// By least harm, independent of allocations: the published order.
    LeastHarm,
    /// By name, as NVIDIA's DRA driver lists them.
    Name,
    /// By least harm given the current allocations, listed again after every change.
    Relisted,
}

/// A step of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A request for a profile, by its index in the list of profiles.
    Arrive(usize),
    /// The end of the request with this arrival number. It has no effect if that request was not served.
    Depart(usize),
}

/// Result of a sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimulationResult {
    /// Number of steps.
    pub steps: u64,
    /// Number of requests.
    pub asked: u64,
    /// Number of requests that got a device.
    pub given: u64,
    /// Per profile: number of steps after which a request would have been served.
    pub fits: Vec<u64>,
}

/// A placement on a GPU, and its consumption.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    gpu: usize,
    profile: usize,
    slices: u64,
    start: u32,
}

/// Consumption of a GPU.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    slices: u64,
    engines: [u64; ENGINES],
}

/// Runs a sequence of requests on `gpus` empty, identical GPUs with devices listed in `order`. A request that is not
/// served at once is lost.
pub fn simulate(
    profiles: &[MigProfile],
    gpus: usize,
    order: ListOrder,
    sequence: &[Step],
) -> SimulationResult {
    let mut node = Node::new(profiles, gpus, order);
    let mut outcome =
        SimulationResult { fits: vec![0; profiles.len()], ..SimulationResult::default() };
    let mut given: Vec<Option<Candidate>> = Vec::new();
    for step in sequence {
        match *step {
            Step::Arrive(profile) => {
                let place = node.take(profile);
                outcome.asked += 1;
                outcome.given += u64::from(place.is_some());
                given.push(place);
            }
            Step::Depart(arrival) => {
                if let Some(place) = given.get_mut(arrival).and_then(Option::take) {
                    node.free(place);
                }
            }
        }
        outcome.steps += 1;
        for (profile, fits) in outcome.fits.iter_mut().enumerate() {
            *fits += u64::from(node.fits(profile));
        }
    }
    outcome
}

struct Node {
    is_relisted: bool,
    /// Per profile: its placements, in list order.
    places: Vec<Vec<Candidate>>,
    /// Per profile: the slices of larger profiles' placements on a GPU, the largest first.
    larger: Vec<Vec<Vec<u64>>>,
    needs: Vec<[u64; ENGINES]>,
    total: [u64; ENGINES],
    taken: Vec<Taken>,
}

impl Node {
    fn new(profiles: &[MigProfile], gpus: usize, order: ListOrder) -> Self {
        let needs: Vec<_> = profiles.iter().map(needs).collect();
        // As in the published counters: the maximum over all profiles.
        let total =
            std::array::from_fn(|engine| needs.iter().map(|need| need[engine]).max().unwrap_or(0));
        let places = profiles.iter().enumerate();
        let places = places.map(|(index, _)| list(profiles, index, gpus, order)).collect();
        let masks = |profile: &&MigProfile| profile.placements.iter().copied().map(mask).collect();
        let larger = profiles
            .iter()
            .map(|profile| larger(profiles, profile).iter().map(masks).collect())
            .collect();
        Self {
            is_relisted: order == ListOrder::Relisted,
            places,
            larger,
            needs,
            total,
            taken: vec![Taken::default(); gpus],
        }
    }

    fn is_free(&self, place: &Candidate) -> bool {
        let (taken, need) = (&self.taken[place.gpu], &self.needs[place.profile]);
        taken.slices & place.slices == 0
            && (0..ENGINES).all(|engine| taken.engines[engine] + need[engine] <= self.total[engine])
    }

    fn fits(&self, profile: usize) -> bool {
        self.places[profile].iter().any(|place| self.is_free(place))
    }

    fn take(&mut self, profile: usize) -> Option<Candidate> {
        let mut free = self.places.get(profile)?.iter().filter(|place| self.is_free(place));
        let place = *if self.is_relisted {
            // `max_by_key` returns the last of equal elements, so the list is reversed.
            free.rev().max_by_key(|place| self.survivors(place))?
        } else {
            free.next()?
        };
        let taken = &mut self.taken[place.gpu];
        taken.slices |= place.slices;
        for (taken, need) in taken.engines.iter_mut().zip(self.needs[profile]) {
            *taken += need;
        }
        Some(place)
    }

    fn free(&mut self, place: Candidate) {
        let taken = &mut self.taken[place.gpu];
        taken.slices &= !place.slices;
        for (taken, need) in taken.engines.iter_mut().zip(self.needs[place.profile]) {
            *taken -= need;
        }
    }

    /// Per larger profile, the largest first: minus the number of its placements that this placement blocks.
    fn survivors(&self, place: &Candidate) -> Vec<i64> {
        let taken = self.taken[place.gpu].slices;
        let is_lost = |other: &&u64| **other & taken == 0 && **other & place.slices != 0;
        let lost = |masks: &Vec<u64>| masks.iter().filter(is_lost).count();
        let losses = self.larger[place.profile].iter().map(lost);
        losses.map(|lost| -i64::try_from(lost).unwrap_or(i64::MAX)).collect()
    }
}

/// The placements of a profile, in list order.
fn list(profiles: &[MigProfile], index: usize, gpus: usize, order: ListOrder) -> Vec<Candidate> {
    let Some(profile) = profiles.get(index) else { return Vec::new() };
    let place = |gpu: usize, placement: MigPlacement| Candidate {
        gpu,
        profile: index,
        slices: mask(placement),
        start: placement.start,
    };
    if order == ListOrder::Name {
        let mut places: Vec<_> = (0..gpus)
            .flat_map(|gpu| profile.placements.iter().map(move |placement| place(gpu, *placement)))
            .collect();
        places.sort_by_key(|place| {
            let minor = u32::try_from(place.gpu).unwrap_or(u32::MAX);
            mig_name(minor, profile, MigPlacement { start: place.start, size: 0 })
        });
        return places;
    }
    let placements = least_harm(profiles, profile);
    (0..gpus)
        .rev()
        .flat_map(|gpu| placements.iter().map(move |placement| place(gpu, *placement)))
        .collect()
}

fn mask(placement: MigPlacement) -> u64 {
    let ones = if placement.size >= u64::BITS { u64::MAX } else { (1 << placement.size) - 1 };
    ones.checked_shl(placement.start).unwrap_or(0)
}

fn needs(profile: &MigProfile) -> [u64; ENGINES] {
    [
        profile.multiprocessors.into(),
        profile.copy_engines.into(),
        profile.decoders.into(),
        profile.encoders.into(),
        profile.jpeg_engines.into(),
        profile.ofa_engines.into(),
        profile.memory_mib,
    ]
}
