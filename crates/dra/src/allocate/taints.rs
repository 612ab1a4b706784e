//! Taints and tolerations of devices (KEP-5055).

use crate::claim::Toleration;
use crate::slice::{Device, DeviceTaint, TaintEffect};

/// The first taint that a request does not tolerate.
pub(super) fn untolerated<'s>(
    device: &'s Device,
    tolerations: &[Toleration],
) -> Option<&'s DeviceTaint> {
    device.taints.iter().find(|taint| {
        let is_kept = |toleration: &Toleration| {
            toleration.effect.is_none_or(|effect| effect == taint.effect)
                && toleration.key.as_ref().is_none_or(|key| *key == taint.key)
                && toleration.value.as_ref().is_none_or(|value| *value == taint.value)
        };
        taint.effect != TaintEffect::None && !tolerations.iter().any(is_kept)
    })
}
