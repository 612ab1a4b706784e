//! Starts a component and waits until it serves.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::cluster::component::{self, Component};
use crate::cluster::kubeconfig;
use crate::cluster::layout::Layout;
use crate::cluster::process::{self, Process};
use crate::cluster::settings::Settings;

/// Longest wait for etcd or the API server.
const SERVE_TIMEOUT: Duration = Duration::from_secs(90);

/// Interval between two checks.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Lines of a component's log in an error message.
const LOG_TAIL_LINES: usize = 8;

/// Starts a component unless it runs. Waits until etcd or the API server serves.
pub(crate) async fn component(
    component: Component,
    layout: &Layout,
    settings: &Settings,
) -> anyhow::Result<()> {
    let pid_file = layout.pid_file(component);
    let runs = Process::read(&pid_file).is_some_and(Process::is_alive);
    if !runs {
        let command = component::command(component, layout, settings);
        process::allow_open_files();
        process::spawn(&command, layout.root(), &layout.log(component), &pid_file)
            .with_context(|| format!("start {}", component.name()))?;
    }
    match component {
        Component::Etcd => {
            let address = (Ipv4Addr::LOCALHOST, settings.ports.etcd_client);
            wait_until_serving(component, layout, async || {
                TcpStream::connect(address).await.is_ok()
            })
            .await
        }
        Component::KubeApiserver => {
            wait_until_serving(component, layout, readiness_probe(layout).await?).await
        }
        _ => Ok(()),
    }
}

/// Fails with the end of the component's log if the component has ended.
pub(crate) fn check_alive(component: Component, layout: &Layout) -> anyhow::Result<()> {
    if Process::read(&layout.pid_file(component)).is_some_and(Process::is_alive) {
        return Ok(());
    }
    let log = layout.log(component);
    bail!(
        "{} has ended; the end of its log {}:\n{}",
        component.name(),
        log.display(),
        tail(&std::fs::read_to_string(&log).unwrap_or_default(), LOG_TAIL_LINES)
    )
}

/// The last `count` lines of a text, indented.
pub(crate) fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(count);
    lines.iter().skip(from).map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

async fn wait_until_serving(
    component: Component,
    layout: &Layout,
    is_up: impl AsyncFn() -> bool,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + SERVE_TIMEOUT;
    while !is_up().await {
        check_alive(component, layout)?;
        if Instant::now() >= deadline {
            bail!(
                "{} did not serve after {} s: see {}",
                component.name(),
                SERVE_TIMEOUT.as_secs(),
                layout.log(component).display()
            );
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// A readiness probe of the API server. Not a [`kube::Client`], which logs an error for each failed
/// probe.
async fn readiness_probe(layout: &Layout) -> anyhow::Result<impl AsyncFn() -> bool> {
    let config = kubeconfig::config(&layout.kubeconfig()).await?;
    let connector = config.rustls_https_connector().context("set up TLS to the API server")?;
    let client: legacy::Client<_, Body> =
        legacy::Client::builder(TokioExecutor::new()).build(connector);
    let uri = format!("{}readyz", config.cluster_url);
    let uri: http::Uri = uri.parse().with_context(|| format!("use the address {uri}"))?;
    Ok(async move || {
        let mut request = http::Request::new(Body::empty());
        *request.uri_mut() = uri.clone();
        client.request(request).await.is_ok_and(|answer| answer.status().is_success())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_the_last_lines() {
        assert_eq!(tail("a\nb\nc\n", 2), "  b\n  c");
        assert_eq!(tail("", 2), "");
    }

    #[test]
    fn a_component_that_has_ended_is_reported_with_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path()).unwrap();
        std::fs::create_dir_all(layout.logs()).unwrap();
        std::fs::write(layout.log(Component::KubeScheduler), "first\nport is taken\n").unwrap();
        let message = check_alive(Component::KubeScheduler, &layout).unwrap_err().to_string();
        assert!(message.contains("kube-scheduler has ended"), "{message}");
        assert!(message.contains("port is taken"), "{message}");
    }
}
