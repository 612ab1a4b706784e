//! What happens next to a job that computes: the first of several independent, exponentially
//! distributed events.

use super::members::{Members, Server};
use super::number::{count, float, whole};
use super::span::Span;
use super::study::{Detection, Memory, Study};
use crate::generate::random::Random;

/// Milliseconds of a day.
pub(super) const DAY: f64 = 86_400_000.0;

/// Something that happens to the job's servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A server fails.
    Failure(Server),
    /// A server is reported though it works.
    FalseAlarm(Server),
    /// A part that several servers depend on fails: number of its kind, number within the kind.
    Parent(usize, usize),
}

/// Rates per millisecond.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    good: f64,
    bad: f64,
    false_alarm: f64,
    /// Of all parts of each kind, with their number.
    parents: Vec<(f64, usize)>,
}

impl Rates {
    pub(super) fn new(study: &Study) -> Self {
        let parents = study.fleet.parents.iter().map(|parent| {
            let groups = study.all_servers().div_ceil(parent.servers as usize);
            (count(groups) * parent.per_day / DAY, groups)
        });
        Self {
            good: study.rate(),
            bad: study.rate() * study.lemons.factor,
            false_alarm: study.failures.false_alarms_per_day / DAY,
            parents: parents.collect(),
        }
    }

    /// The next event and the milliseconds until it; none if nothing can happen.
    pub(super) fn draw(&self, members: &Members, random: &mut Random) -> Option<(u64, Event)> {
        let good = count(members.good()) * self.good;
        let bad = count(members.bad()) * self.bad;
        let alarms = count(members.len()) * self.false_alarm;
        let parents: f64 = self.parents.iter().map(|(rate, _)| rate).sum();
        let total = good + bad + alarms + parents;
        if total <= 0.0 {
            return None;
        }
        let delay = whole(random.exponential(1.0 / total));
        let mut drawn = random.unit() * total;
        for (rate, is_bad) in [(good, false), (bad, true)] {
            if drawn <= rate {
                return Some((delay, Event::Failure(members.draw(is_bad, random)?)));
            }
            drawn -= rate;
        }
        if drawn <= alarms {
            return Some((delay, Event::FalseAlarm(members.draw_any(random)?)));
        }
        drawn -= alarms;
        for (kind, (rate, groups)) in self.parents.iter().enumerate() {
            if drawn <= *rate {
                return Some((delay, Event::Parent(kind, random.index(*groups))));
            }
            drawn -= rate;
        }
        // Rounding left a little: an event of the largest group.
        Some((delay, Event::Failure(members.draw_any(random)?)))
    }
}

impl Study {
    /// All servers, spares included.
    pub(super) fn all_servers(&self) -> usize {
        self.fleet.servers as usize + self.fleet.spares as usize
    }

    /// Failures of a good server per millisecond.
    pub(super) fn rate(&self) -> f64 {
        self.failures.per_day / DAY
    }
}

impl Span {
    /// An exponentially distributed time of this mean, in milliseconds.
    pub(super) fn draw(self, random: &mut Random) -> u64 {
        whole(random.exponential(float(self.millis())))
    }
}

impl Memory {
    /// The time until the next error of a server, in milliseconds.
    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        // The mean of a log-normal distribution is its median times exp(sigma^2 / 2).
        let mean = float(self.median.millis()) * libm::exp(self.sigma * self.sigma / 2.0);
        // A time beyond any study must not overflow when it is added to another.
        whole(random.log_normal(mean, self.sigma)).min(u64::MAX / 4)
    }
}

/// The time until a failure is noticed, in milliseconds.
pub(super) fn detection(lines: &[Detection], random: &mut Random) -> u64 {
    let mut drawn = random.unit();
    for line in lines {
        if drawn <= line.share {
            return line.after.millis();
        }
        drawn -= line.share;
    }
    lines.last().map_or(0, |line| line.after.millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_as_frequent_as_their_rates() {
        let mut study = Study::default();
        study.failures.false_alarms_per_day = 0.002;
        let mut members = Members::new(study.all_servers());
        for server in 0..100 {
            members.add(server, server < 5);
        }
        let rates = Rates::new(&study);
        let mut random = Random::seeded(3);
        let (mut time, mut good, mut bad, mut alarms, mut racks) = (0, 0, 0, 0, 0);
        let draws = 20_000;
        for _ in 0..draws {
            let (delay, event) = rates.draw(&members, &mut random).unwrap();
            time += delay;
            match event {
                Event::Failure(server) if server < 5 => bad += 1,
                Event::Failure(_) => good += 1,
                Event::FalseAlarm(_) => alarms += 1,
                Event::Parent(0, group) if group < 135 => racks += 1,
                Event::Parent(..) => panic!("{event:?}"),
            }
        }
        // Per day: 95 x 0.0033, 5 x 0.066, 100 x 0.002, 135 x 0.0004.
        let days = float(time) / DAY;
        for (found, wanted) in [(good, 0.3135), (bad, 0.33), (alarms, 0.2), (racks, 0.054)] {
            let rate = f64::from(found) / days;
            assert!((rate - wanted).abs() < 0.03 * wanted.max(0.2), "{rate} for {wanted}");
        }
        assert_eq!(good + bad + alarms + racks, draws);
    }

    #[test]
    fn nothing_happens_without_rates() {
        let mut study = Study::default();
        study.failures.per_day = 0.0;
        study.fleet.parents.clear();
        let mut members = Members::new(study.all_servers());
        members.add(0, true);
        assert_eq!(Rates::new(&study).draw(&members, &mut Random::seeded(1)), None);
    }

    #[test]
    fn detection_takes_its_share_of_times() {
        let lines = &Study::default().failures.detection;
        let mut random = Random::seeded(5);
        let draws: Vec<u64> = (0..10_000).map(|_| detection(lines, &mut random)).collect();
        let of = |millis| draws.iter().filter(|draw| **draw == millis).count();
        assert!((7800..8200).contains(&of(5000)), "{}", of(5000));
        assert_eq!(of(5000) + of(180_000) + of(1_200_000), 10_000);
        assert_eq!(detection(&[], &mut random), 0);
    }

    #[test]
    fn memory_errors_come_back_around_their_median() {
        let memory = Memory::default();
        let mut random = Random::seeded(5);
        let early = (0..4000).filter(|_| memory.draw(&mut random) < memory.median.millis()).count();
        assert!((1900..2100).contains(&early), "{early}");
    }
}
