//! What was learned becomes a document and is read back: the policy then chooses as the one that went
//! on would.
//!
//! Only what was counted is written, and of what the tables in use were made. All else follows from
//! that and the cluster.

use std::sync::Arc;

use super::Price;
use super::basis::Basis;
use super::popularity::Popularity;
use super::prior::Size;
use super::schedule::Schedule;
use super::turnover::Turnover;
use crate::cluster::Cluster;
use crate::gpu::{ModelId, ModelSet};
use crate::shape::Shape;
use crate::snapshot::{
    self, BasisForm, CountForm, LearningForm, PACKING_VERSION, PackingForm, SizeForm,
    SnapshotError, TurnoverForm,
};

/// Most of one weight: far above any count of pods, far below an overflow of products.
const MOST_WEIGHT: i64 = 1 << 46;
/// Most of all weights together.
const MOST_TOTAL: i64 = 1 << 56;
/// Most of an amount of a node.
const MOST_AMOUNT: i64 = 1 << 40;

impl Price {
    /// What was learned by now, as a document. `cluster` is the one that the policy is asked about.
    pub fn saved(&self, cluster: &Cluster) -> PackingForm {
        let learning = |schedule: &Schedule| LearningForm {
            arrivals: schedule.arrivals,
            next: schedule.next,
            step: schedule.step,
            since_step: schedule.since_step,
        };
        let Turnover { came, left, since, used } = self.turnover;
        PackingForm {
            version: PACKING_VERSION,
            learning: self.schedule.as_ref().map(learning),
            counts: self.counts(cluster),
            turnover: TurnoverForm { came, left, since, percent: used },
            basis: self.basis.as_ref().map(|basis| basis_form(basis, cluster)),
        }
    }

    /// The policy of a document, for a cluster with the models that it names.
    ///
    /// # Errors
    ///
    /// Of another version, with a model that the cluster does not have, or with an amount that cannot
    /// be. A policy that begins anew is the way out.
    pub fn restored(form: &PackingForm, cluster: &Cluster) -> Result<Self, SnapshotError> {
        if form.version != PACKING_VERSION {
            let wanted = format!("{PACKING_VERSION}; begin without what was learned");
            return Err(amount("version", form.version.into(), wanted));
        }
        let (mut now, mut then) = (Popularity::default(), Popularity::default());
        for count in &form.counts {
            let shape = Arc::new(shape(count, cluster)?);
            for (field, weight, popularity) in
                [("weight", count.weight, &mut now), ("then", count.then, &mut then)]
            {
                within(field, weight, MOST_WEIGHT)?;
                if weight > 0 {
                    popularity.add(&shape, weight);
                }
                within("sum of the counts", popularity.total(), MOST_TOTAL)?;
            }
        }
        let TurnoverForm { came, left, since, percent: used } = form.turnover;
        within("percent", used, 100)?;
        let schedule = form.learning.as_ref().map(|one| Schedule {
            arrivals: one.arrivals,
            next: one.next,
            step: one.step,
            since_step: one.since_step,
        });
        let basis = form.basis.as_ref().map(|form| basis(form, then, cluster)).transpose()?;
        let turnover = Turnover { came, left, since, used };
        Ok(Self { popularity: now, schedule, turnover, basis, books: None })
    }

    /// All shapes that count now or did when the tables were made.
    fn counts(&self, cluster: &Cluster) -> Vec<CountForm> {
        let none = Popularity::default();
        let then = self.basis.as_ref().map_or(&none, |basis| &basis.popularity);
        let ranked = self.popularity.ranked();
        let gone = then.ranked();
        let gone = gone.iter().filter(|entry| self.popularity.weight(&entry.shape) == 0);
        let count = |shape: &Arc<Shape>| CountForm {
            shape: snapshot::shape_form(shape, cluster),
            model_bits: model_bits(shape, cluster),
            weight: self.popularity.weight(shape),
            then: then.weight(shape),
        };
        ranked.iter().chain(gone).map(|entry| count(&entry.shape)).collect()
    }
}

/// The set of a shape's models where the names of models do not tell it.
fn model_bits(shape: &Shape, cluster: &Cluster) -> Option<u64> {
    let known = snapshot::models(&place, &snapshot::shape_form(shape, cluster), cluster);
    (known.ok() != Some(shape.models)).then_some(shape.models.0)
}

fn shape(form: &CountForm, cluster: &Cluster) -> Result<Shape, SnapshotError> {
    let named = snapshot::models(&place, &form.shape, cluster)?;
    let models = form.model_bits.map_or(named, ModelSet);
    Ok(snapshot::any_shape(&form.shape, models))
}

fn basis_form(basis: &Basis, cluster: &Cluster) -> BasisForm {
    let names = cluster.models().iter().map(|model| model.name.clone());
    let size = |size: &Size| SizeForm {
        gpus: size.gpus,
        cpu_milli: size.cpu_milli,
        memory_mib: size.memory_mib,
    };
    BasisForm {
        gpus: names.zip(basis.gpus.iter().copied()).collect(),
        sizes: basis.sizes.iter().map(size).collect(),
    }
}

fn basis(form: &BasisForm, then: Popularity, cluster: &Cluster) -> Result<Basis, SnapshotError> {
    let mut gpus = vec![0; cluster.models().len()];
    for (name, count) in &form.gpus {
        let ModelId(number) = snapshot::model_of(&place, name, cluster)?;
        gpus[usize::from(number)] = *count;
    }
    let size = |size: &SizeForm| {
        within("cpuMilli", size.cpu_milli, MOST_AMOUNT)?;
        within("memoryMib", size.memory_mib, MOST_AMOUNT)?;
        let SizeForm { gpus, cpu_milli, memory_mib } = *size;
        Ok(Size { gpus, cpu_milli, memory_mib })
    };
    let sizes = form.sizes.iter().map(size).collect::<Result<_, SnapshotError>>()?;
    Ok(Basis::new(then, gpus, sizes))
}

fn within(field: &'static str, value: i64, most: i64) -> Result<(), SnapshotError> {
    if (0..=most).contains(&value) {
        return Ok(());
    }
    Err(amount(field, value, format!("0 to {most}")))
}

fn amount(field: &'static str, value: i64, wanted: String) -> SnapshotError {
    SnapshotError::Amount { place: place(), field, value, wanted }
}

fn place() -> String {
    "packing".to_owned()
}
