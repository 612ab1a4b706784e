//! What concerns the program of CDI hooks: whether it runs on this node, and what it asks of the driver.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use octavo_api::Refusal;
use octavo_gpu::MemoryLimits;
use octavo_hook::memory_limits::{LimitRequest, is_own_cgroup};
use octavo_node::{ClaimRef, beneath};

use super::{Claims, Inner};

impl Claims {
    /// Sets why the program of CDI hooks does not run on this node; `None` if it does. Without it no container with a
    /// GPU would start, so no claim is prepared.
    pub(crate) fn set_hook_problem(&self, problem: Option<String>) {
        *self.inner.hook_problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }

    /// Sets the driver's memory limit of a container's cgroup, as its hook asks. The error is for people.
    pub(crate) async fn limit_memory(&self, request: LimitRequest) -> Result<(), String> {
        let inner = Arc::clone(&self.inner);
        let task = tokio::task::spawn_blocking(move || inner.limit_memory(&request));
        task.await.map_err(|error| format!("the task that sets the limit failed: {error}"))?
    }
}

impl Inner {
    /// Refuses claims while the program of their hooks does not run.
    pub(super) fn check_hook(&self, claim: &ClaimRef) -> Result<(), Refusal> {
        let problem = self.hook_problem.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match problem {
            None => Ok(()),
            Some(problem) => Err(Refusal::HookNotReady {
                claim: claim.to_string(),
                problem,
                node: self.node.clone(),
            }),
        }
    }

    fn limit_memory(&self, request: &LimitRequest) -> Result<(), String> {
        let cgroup: &Path = &request.cgroup;
        if !is_own_cgroup(cgroup) {
            return Err(format!("{} is no container's cgroup", cgroup.display()));
        }
        let folder = beneath(&self.paths.cgroup_root, cgroup);
        if !folder.is_dir() {
            return Err(format!("the container's cgroup {} is not there", folder.display()));
        }
        let driver = self
            .modes
            .driver()
            .ok_or("the driver is not open; the log of the node's agent says why")?;
        // A soft limit would remain in the parent cgroups; see `enforcement/src/backend/driver.rs`.
        let limits = MemoryLimits { soft_bytes: 0, hard_bytes: request.memory_bytes };
        driver.set_memory_limits(&request.gpu, &folder, limits).map_err(|error| error.to_string())
    }
}
