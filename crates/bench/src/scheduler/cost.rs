//! Cost of a case: processor time and memory of scheduler and API server, and the number of writes.

use std::collections::BTreeMap;

use octavo_lab::Component;

use super::testbed::Testbed;
use crate::{api_server, process};

/// Processor time and writes so far.
pub(super) struct Before {
    apiserver: f64,
    scheduler: f64,
    writes: BTreeMap<String, f64>,
}

/// The resources used since then.
#[derive(Clone, Debug, Default)]
pub(super) struct Cost {
    /// Processor seconds of the API server.
    pub(super) apiserver_cpu: f64,
    /// Processor seconds of the scheduler; none without one.
    pub(super) scheduler_cpu: Option<f64>,
    /// Most resident memory of the API server so far, MiB.
    pub(super) apiserver_memory: f64,
    /// Peak resident memory of the scheduler in MiB; `None` without one.
    pub(super) scheduler_memory: Option<f64>,
    /// Writes by verb and resource, of all clients.
    pub(super) writes: BTreeMap<String, f64>,
}

/// Begins to count.
pub(super) async fn begin(testbed: &Testbed) -> anyhow::Result<Before> {
    Ok(Before {
        apiserver: seconds(testbed.pid(Component::KubeApiserver)?)?,
        scheduler: scheduler(testbed)?.map(seconds).transpose()?.unwrap_or_default(),
        writes: api_server::writes(testbed.api.client()).await?,
    })
}

impl Before {
    /// The resources used since [`begin`].
    pub(super) async fn end(self, testbed: &Testbed) -> anyhow::Result<Cost> {
        let apiserver = testbed.pid(Component::KubeApiserver)?;
        let scheduler = scheduler(testbed)?;
        let used = scheduler.map(seconds).transpose()?;
        // Read before the metrics, whose text costs the API server time as well.
        let apiserver_cpu = seconds(apiserver)? - self.apiserver;
        let mut writes = api_server::writes(testbed.api.client()).await?;
        for (what, before) in &self.writes {
            if let Some(count) = writes.get_mut(what) {
                *count -= before;
            }
        }
        writes.retain(|_, count| *count > 0.0);
        Ok(Cost {
            apiserver_cpu,
            scheduler_cpu: used.map(|used| used - self.scheduler),
            apiserver_memory: process::peak_memory(apiserver)?,
            scheduler_memory: scheduler.map(process::peak_memory).transpose()?,
            writes,
        })
    }
}

impl Cost {
    /// Writes beyond those that are known of.
    pub(super) fn writes_beyond(&self, known: f64) -> f64 {
        self.writes.values().sum::<f64>() - known
    }
}

fn scheduler(testbed: &Testbed) -> anyhow::Result<Option<u32>> {
    testbed.contender.component().map(|component| testbed.pid(component)).transpose()
}

fn seconds(pid: u32) -> anyhow::Result<f64> {
    Ok(process::cpu_time(pid)?.as_secs_f64())
}
