//! Scheduler processes: a second one, and one that is stopped and continued.

use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use octavo_lab::{Component, Process};

use crate::testbed::{OCTAVO, Testbed, eventually};

/// A second scheduler, which ends with the test.
pub(super) struct SecondScheduler(Child);

/// A stopped process; it is continued on drop, even if a test fails.
pub(super) struct StoppedProcess(Process);

impl SecondScheduler {
    /// Starts a scheduler beside the lab's own, with the same config and rights.
    pub(super) fn start(testbed: &Testbed, identity: &str, listen: &str) -> Self {
        let layout = testbed.lab.layout();
        let log = std::fs::File::create(
            layout
                .log(Component::OctavoScheduler)
                .with_file_name(format!("octavo-scheduler.{identity}.log")),
        );
        let child = Command::new(OCTAVO)
            .arg("scheduler")
            // The variable ends it with the lab, even if this test is killed.
            .env("OCTAVO_LAB_OF", testbed.lab.state_dir())
            .arg("--kubeconfig")
            .arg(layout.client_kubeconfig("octavo-scheduler"))
            .arg("--config")
            .arg(layout.octavo_scheduler_config())
            .args(["--identity", identity, "--metrics-listen", listen])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.unwrap())
            .spawn();
        Self(child.unwrap())
    }
}

impl SecondScheduler {
    /// Terminates it, so that it releases the lease and no test waits for the lease to expire.
    pub(super) async fn end(mut self) {
        signal("-TERM", &self.0.id().to_string());
        eventually("the second scheduler ends", || {
            let ended = self.0.try_wait().ok().flatten();
            async move { ended }
        })
        .await;
    }
}

impl Drop for SecondScheduler {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl StoppedProcess {
    /// Stops a process of the lab.
    pub(super) fn of(testbed: &Testbed, component: Component) -> Self {
        let process = testbed.lab.process(component).expect("it runs");
        signal("-STOP", &process.pid.to_string());
        Self(process)
    }
}

impl Drop for StoppedProcess {
    fn drop(&mut self) {
        signal("-CONT", &self.0.pid.to_string());
    }
}

/// Sends a signal. Failures show in the following waits.
fn signal(signal: &str, pid: &str) {
    let _ = Command::new("kill").args([signal, pid]).status();
}

/// Waits until the holder of the scheduler's lease satisfies `is_it`, and returns it.
pub(super) async fn wait_for_holder(
    testbed: &Testbed,
    what: &str,
    is_it: impl Fn(&str) -> bool,
) -> String {
    let leases: Api<Lease> = Api::namespaced(testbed.client.clone(), "octavo-system");
    eventually(what, || async {
        let holder = leases.get("octavo-scheduler").await.ok()?.spec?.holder_identity?;
        is_it(&holder).then_some(holder)
    })
    .await
}

/// Waits until the scheduler's lease has expired.
pub(super) async fn wait_for_lease_expiry(testbed: &Testbed) {
    let leases: Api<Lease> = Api::namespaced(testbed.client.clone(), "octavo-system");
    eventually("the lease is over", || async {
        let spec = leases.get("octavo-scheduler").await.ok()?.spec?;
        let seconds = i64::from(spec.lease_duration_seconds?);
        let age = spec.renew_time?.0.duration_until(k8s_openapi::jiff::Timestamp::now());
        (age.as_secs() > seconds).then_some(())
    })
    .await;
}

/// A non-loopback address of this machine, if it has one.
pub(super) fn own_address() -> Option<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Sends nothing; only resolves the route.
    socket.connect("198.51.100.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then(|| address.to_string())
}
