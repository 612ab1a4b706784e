//! A scheduler that is killed and started, with a pod created in between.

use std::time::{Duration, Instant};

use anyhow::Context;

use crate::scheduler::api::Kind;
use crate::scheduler::objects::{self, PodRequest};
use crate::scheduler::testbed::Testbed;

/// Seconds from the start of the killed scheduler until it has bound `set-number`, the only pod of
/// its set that is not bound yet.
pub(super) async fn first_binding(
    testbed: &Testbed,
    set: &'static str,
    number: usize,
    request: PodRequest,
    timeout: Duration,
) -> anyhow::Result<f64> {
    let component =
        testbed.contender.component().context("this contender has no process to restart")?;
    testbed.lab.kill(component).await;
    let pod = objects::pod(&format!("{set}-{number}"), request, testbed.contender);
    testbed.api.create(Kind::Pods, &pod).await?;
    let began = Instant::now();
    testbed.lab.start(component).await?;
    let bound = testbed.observer.all_bound(set, number + 1, timeout).await?;
    Ok((bound - began).as_secs_f64())
}
