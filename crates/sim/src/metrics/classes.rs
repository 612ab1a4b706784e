use serde::Serialize;

use super::ratio;
use crate::trace::PodRow;

/// What became of the pods, by what they ask for. A pod counts in one of the first four, and in
/// the last as well if it is tied to models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Accepted {
    /// No GPU.
    pub cpu_only: ClassCount,
    /// A part of a GPU.
    pub share: ClassCount,
    /// One whole GPU.
    pub one_gpu: ClassCount,
    /// Several GPUs.
    pub multi_gpu: ClassCount,
    /// GPUs of named models.
    pub model_constrained: ClassCount,
}

/// What became of the pods of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ClassCount {
    /// Pods that came.
    pub arrived: u64,
    /// Pods that were placed.
    pub placed: u64,
    /// `placed` of `arrived`; none if none came.
    pub ratio: Option<f64>,
    /// GPUs wanted, of those there are, when the first of them was skipped.
    pub first_skip: Option<f64>,
}

impl Accepted {
    /// A pod was placed or skipped when so much was wanted.
    pub(super) fn count(&mut self, pod: &PodRow, is_placed: bool, wanted: f64) {
        let by_size = match (pod.num_gpu, pod.gpu_milli) {
            (0, _) => &mut self.cpu_only,
            (1, ..1000) => &mut self.share,
            (1, _) => &mut self.one_gpu,
            (2.., _) => &mut self.multi_gpu,
        };
        by_size.count(is_placed, wanted);
        if is_constrained(pod) {
            self.model_constrained.count(is_placed, wanted);
        }
    }
}

impl ClassCount {
    fn count(&mut self, is_placed: bool, wanted: f64) {
        self.arrived += 1;
        self.placed += u64::from(is_placed);
        self.ratio = ratio(self.placed, self.arrived);
        if !is_placed && self.first_skip.is_none() {
            self.first_skip = Some(wanted);
        }
    }
}

/// Whether only GPUs of named models will do.
pub(super) fn is_constrained(pod: &PodRow) -> bool {
    pod.num_gpu > 0 && !pod.models.is_empty()
}
