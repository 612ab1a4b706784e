//! The process around the plans: watches, the loop that plans, writes, and the lease.

mod event_loop;
mod health;
mod leader;
mod leadership;
mod pod_reader;
mod queue;
mod requests;
mod run;
#[cfg(test)]
mod tests;
mod translation;
mod watches;
mod writer;

use tokio_util::sync::CancellationToken;

pub use run::run;

/// Starts a task, until `stop`. If it ends otherwise, the process ends: its work is left undone.
fn spawn(stop: &CancellationToken, task: impl Future<Output = ()> + Send + 'static) {
    let (ends, stop) = (stop.clone().drop_guard(), stop.clone());
    let task = Box::pin(task);
    tokio::spawn(async move {
        let _ends = ends;
        stop.run_until_cancelled(task).await;
    });
}
