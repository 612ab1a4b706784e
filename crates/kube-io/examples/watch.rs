//! Prints the events of a cluster's watches as a scheduler receives them. The cluster is that of
//! `KUBECONFIG`.
//!
//! `cargo run -p octavo-kube-io --example watch -- [GROUP/VERSION/KIND...]`
#![allow(clippy::print_stdout, reason = "it is what this program is for")]

use octavo_kube_io::client::{ClientOptions, connect};
use octavo_kube_io::objects::{Change, Delta, Meta};
use octavo_kube_io::watch::{WantedKind, WatchEvent, WatchOptions, Watches, watch};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let user_agent = "octavo-watch-example/1".to_owned();
    let client = connect(&ClientOptions { user_agent, ..ClientOptions::default() }).await?;
    let wanted = |text: String| {
        let parts: Vec<_> = text.split('/').map(str::to_owned).collect();
        let [group, version, kind] = <[String; 3]>::try_from(parts).ok()?;
        Some(WantedKind { group, versions: vec![version], kind, labels: None })
    };
    let kinds = std::env::args().skip(1).filter_map(wanted).collect();
    let Watches { mut events, health, .. } =
        watch(&client, WatchOptions { kinds, ..WatchOptions::default() });
    let mut problems = tokio::time::interval(std::time::Duration::from_secs(5));
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Some(WatchEvent::Change(change)) => print(&change),
                Some(WatchEvent::Synced) => println!("all kinds were listed"),
                Some(WatchEvent::FreshAsOf(_)) => println!("pods and claims were listed"),
                None => return Ok(()),
            },
            _ = problems.tick() => {
                for (kind, problem) in health.problems() {
                    println!("{kind}: {problem}");
                }
                let age = health.staleness(tokio::time::Instant::now());
                println!("oldest news: {age:?}");
            }
        }
    }
}

fn print(change: &Change) {
    match change {
        Change::Pod(delta) => say("Pod", delta, |pod| &pod.meta),
        Change::Node(delta) => say("Node", delta, |node| &node.meta),
        Change::Slice(delta) => say("ResourceSlice", delta, |slice| &slice.meta),
        Change::Claim(delta) => say("ResourceClaim", delta, |claim| &claim.meta),
        Change::Class(delta) => say("DeviceClass", delta, |class| &class.meta),
        Change::VolumeClaim(delta) => say("PersistentVolumeClaim", delta, |claim| &claim.meta),
        Change::Volume(delta) => say("PersistentVolume", delta, |volume| &volume.meta),
        Change::StorageClass(delta) => say("StorageClass", delta, |class| &class.meta),
        Change::CsiNode(delta) => say("CSINode", delta, |node| &node.meta),
        Change::CsiDriver(delta) => say("CSIDriver", delta, |driver| &driver.meta),
        Change::CsiCapacity(delta) => say("CSIStorageCapacity", delta, |capacity| &capacity.meta),
        Change::Budget(delta) => say("PodDisruptionBudget", delta, |budget| &budget.meta),
        Change::Object(delta) => say("object", delta, |object| &object.meta),
        Change::Namespace(delta) => say("Namespace", delta, |meta| meta),
    }
}

fn say<T>(kind: &str, delta: &Delta<T>, meta: impl Fn(&T) -> &Meta) {
    match delta {
        Delta::Upsert(one) => println!("{kind} {} is there", meta(one).name),
        Delta::Delete(one) => println!("{kind} {} is gone", meta(one).name),
        Delta::Replace(kind, all) => {
            let names: Vec<_> = all.iter().map(|one| meta(one).name.to_string()).collect();
            println!("{kind}: {} in the list: {}", all.len(), names.join(" "));
        }
    }
}
