//! Saves and restores the learned state: a restored policy chooses as the original would.
//!
//! Only the counts and the inputs of the current model are written. Everything else follows from
//! these and the cluster.

use std::sync::Arc;

use super::PricePolicy;
use super::churn::Churn;
use super::demand_stats::DemandStats;
use super::model_inputs::ModelInputs;
use super::prior::Size;
use super::schedule::Schedule;
use crate::cluster::Cluster;
use crate::gpu::{ModelId, ModelSet};
use crate::shape::Shape;
use crate::snapshot::{
    self, ChurnRecord, CountRecord, LearningRecord, ModelInputsRecord, PACKING_VERSION,
    PackingRecord, SizeRecord, SnapshotError,
};

/// The maximum of one weight: far above any count of pods, far below an overflow of products.
const MAX_WEIGHT: i64 = 1 << 46;
/// Most of all weights together.
const MAX_TOTAL_WEIGHT: i64 = 1 << 56;
/// Most of an amount of a node.
const MAX_AMOUNT: i64 = 1 << 40;

impl PricePolicy {
    /// The learned state as a record. `cluster` is the cluster of this policy.
    pub fn saved(&self, cluster: &Cluster) -> PackingRecord {
        let learning = |schedule: &Schedule| LearningRecord {
            arrivals: schedule.arrivals,
            next: schedule.next,
            step: schedule.step,
            since_step: schedule.since_step,
        };
        let Churn { came, left, since, is_steady } = self.churn;
        PackingRecord {
            version: PACKING_VERSION,
            learning: self.schedule.as_ref().map(learning),
            counts: self.counts(cluster),
            churn: ChurnRecord { came, left, since, is_steady },
            inputs: self.inputs.as_ref().map(|inputs| inputs_record(inputs, cluster)),
        }
    }

    /// The policy of a record, for a cluster with the models that it names.
    ///
    /// # Errors
    ///
    /// Fails for another version, a model that the cluster lacks, or an invalid amount. The caller
    /// can start a policy without learned state instead.
    pub fn restored(record: &PackingRecord, cluster: &Cluster) -> Result<Self, SnapshotError> {
        if record.version != PACKING_VERSION {
            let wanted = format!("{PACKING_VERSION}; start without the learned state");
            return Err(amount("version", record.version.into(), wanted));
        }
        let (mut now, mut then) = (DemandStats::default(), DemandStats::default());
        for count in &record.counts {
            let shape = Arc::new(shape(count, cluster)?);
            for (field, weight, demand_stats) in
                [("weight", count.weight, &mut now), ("then", count.then, &mut then)]
            {
                within(field, weight, MAX_WEIGHT)?;
                if weight > 0 {
                    demand_stats.add(&shape, weight);
                }
                within("sum of the counts", demand_stats.total(), MAX_TOTAL_WEIGHT)?;
            }
        }
        let ChurnRecord { came, left, since, is_steady } = record.churn;
        let schedule = record.learning.as_ref().map(|learning| Schedule {
            arrivals: learning.arrivals,
            next: learning.next,
            step: learning.step,
            since_step: learning.since_step,
        });
        let inputs =
            record.inputs.as_ref().map(|record| inputs(record, then, cluster)).transpose()?;
        let churn = Churn { came, left, since, is_steady };
        let (score_cache, avoids_risk) = (None, false);
        Ok(Self { demand_stats: now, schedule, churn, inputs, score_cache, avoids_risk })
    }

    /// All shapes that count now or did when the tables were made.
    fn counts(&self, cluster: &Cluster) -> Vec<CountRecord> {
        let none = DemandStats::default();
        let then = self.inputs.as_ref().map_or(&none, |inputs| &inputs.demand_stats);
        let ranked = self.demand_stats.ranked();
        let gone = then.ranked();
        let gone = gone.iter().filter(|entry| self.demand_stats.weight(&entry.shape) == 0);
        let count = |shape: &Arc<Shape>| CountRecord {
            shape: snapshot::shape_record(shape, cluster),
            model_bits: model_bits(shape, cluster),
            weight: self.demand_stats.weight(shape),
            then: then.weight(shape),
        };
        ranked.iter().chain(gone).map(|entry| count(&entry.shape)).collect()
    }
}

/// The bits of a shape's models, if model names cannot express them.
fn model_bits(shape: &Shape, cluster: &Cluster) -> Option<u64> {
    let known = snapshot::models(&place, &snapshot::shape_record(shape, cluster), cluster);
    (known.ok() != Some(shape.models)).then_some(shape.models.0)
}

fn shape(record: &CountRecord, cluster: &Cluster) -> Result<Shape, SnapshotError> {
    let named = snapshot::models(&place, &record.shape, cluster)?;
    let models = record.model_bits.map_or(named, ModelSet);
    Ok(snapshot::any_shape(&record.shape, models))
}

fn inputs_record(inputs: &ModelInputs, cluster: &Cluster) -> ModelInputsRecord {
    let names = cluster.models().iter().map(|model| model.name.clone());
    let size = |size: &Size| SizeRecord {
        gpus: size.gpus,
        cpu_milli: size.cpu_milli,
        memory_mib: size.memory_mib,
    };
    ModelInputsRecord {
        gpus: names.zip(inputs.gpus.iter().copied()).collect(),
        sizes: inputs.sizes.iter().map(size).collect(),
    }
}

fn inputs(
    record: &ModelInputsRecord,
    then: DemandStats,
    cluster: &Cluster,
) -> Result<ModelInputs, SnapshotError> {
    let mut gpus = vec![0; cluster.models().len()];
    for (name, count) in &record.gpus {
        let ModelId(number) = snapshot::model_of(&place, name, cluster)?;
        gpus[usize::from(number)] = *count;
    }
    let size = |size: &SizeRecord| {
        within("cpuMilli", size.cpu_milli, MAX_AMOUNT)?;
        within("memoryMib", size.memory_mib, MAX_AMOUNT)?;
        let SizeRecord { gpus, cpu_milli, memory_mib } = *size;
        Ok(Size { gpus, cpu_milli, memory_mib })
    };
    let sizes = record.sizes.iter().map(size).collect::<Result<_, SnapshotError>>()?;
    Ok(ModelInputs::new(then, gpus, sizes))
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
