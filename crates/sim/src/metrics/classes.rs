use serde::Serialize;

use super::ratio;
use crate::trace::PodRow;

/// Placed and skipped pods by their request. A pod counts in one of the first four classes. A pod
/// with named models counts in the last class too.
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

/// Arrived and placed pods of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ClassCount {
    /// Pods that came.
    pub arrived: u64,
    /// Pods that were placed.
    pub placed: u64,
    /// `placed` of `arrived`; none if none came.
    pub ratio: Option<f64>,
    /// Wanted GPUs as a ratio of all GPUs when the first of them was skipped.
    pub first_skip: Option<f64>,
}

impl Accepted {
    /// Counts a pod that was placed or skipped at this demand.
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

/// Whether the pod accepts only GPUs of named models.
pub(super) fn is_constrained(pod: &PodRow) -> bool {
    pod.num_gpu > 0 && !pod.models.is_empty()
}
