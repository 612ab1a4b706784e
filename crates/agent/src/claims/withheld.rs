//! What is withheld from claims: all GPUs while the device plugin has them, and parts that get another MIG layout.

use std::collections::BTreeSet;

use octavo_gpu::Gpu;

use super::{Claims, Holding};
use crate::gpu_mode::ChangeError;
use crate::mig_layout::{Change, ClosedParts};

impl Claims {
    /// Lends the GPUs to the device plugin: no claim gets one from here on. Returns the claims that hold some.
    pub(crate) fn lend(&self) -> Vec<Holding> {
        self.inner.holds().lend()
    }

    /// Whether the device plugin has the GPUs.
    #[cfg(test)]
    pub(crate) fn is_lent(&self) -> bool {
        self.inner.holds().is_lent()
    }

    /// Takes the GPUs back from the device plugin.
    pub(crate) fn take_back(&self) {
        self.inner.holds().take_back();
    }

    /// Closes parts of GPUs that are about to change, and opens all others: no claim gets any of them from here on.
    pub(crate) fn close_parts(&self, parts: ClosedParts) {
        self.inner.holds().close(parts);
    }

    /// The claims that have a part of these, and those whose devices are unknown.
    pub(crate) fn holders(&self, parts: &ClosedParts) -> BTreeSet<String> {
        self.inner.holds().holders(parts)
    }

    /// Makes a GPU exclusive to one process, or no longer. The node does not pass to another agent meanwhile.
    ///
    /// # Errors
    ///
    /// The driver is closed, or refuses.
    pub(crate) async fn set_exclusive(&self, uuid: &str, is_exclusive: bool) -> Result<(), String> {
        let closed = || "the driver is closed".to_owned();
        if is_exclusive && !self.inner.holds().is_lent() {
            return Err("claims have the GPUs".to_owned());
        }
        let Some(permit) = self.inner.gate.enter().await else { return Err(closed()) };
        let Ok(turn) = self.inner.modes.turn_or_lock(uuid).await else { return Err(closed()) };
        let uuid = uuid.to_owned();
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let done = if is_exclusive {
                turn.make_exclusive(&uuid)
            } else {
                turn.reset_compute_mode(&uuid)
            };
            done.map_err(|error| format!("GPU {uuid}: {error}"))
        });
        task.await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Gives a GPU another layout of MIG devices, in its turn. The node does not pass to another agent meanwhile.
    ///
    /// # Errors
    ///
    /// As those of [`GpuTurn::apply`](crate::gpu_mode::GpuTurn::apply), or the driver is closed.
    pub(crate) async fn change_gpu(&self, gpu: Gpu, change: Change) -> Result<(), ChangeError> {
        let Some(permit) = self.inner.gate.enter().await else { return Err(ChangeError::Closed) };
        let turn = self.inner.modes.turn_or_lock(&gpu.uuid).await;
        let Ok(turn) = turn else { return Err(ChangeError::Closed) };
        let task = tokio::task::spawn_blocking(move || {
            // The caller may be gone before the driver answers.
            let _permit = permit;
            turn.apply(&gpu, &change)
        });
        // A task ends early only with the process.
        task.await.unwrap_or(Err(ChangeError::Stale))
    }
}
