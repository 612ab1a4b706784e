//! Device health as reported by plugins (KEP-4680), over one open stream per plugin.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use octavo_kubelet_api::health::{v1, v1alpha1};
use tokio::sync::watch;

use crate::kubelet::plugins::{HealthVersion, PluginInstance};

/// Validity of a report without a timeout, as in the kubelet.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest message that the API takes, in bytes.
const MAX_MESSAGE_BYTES: usize = 1024;

/// Health of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Health {
    /// Not reported, or reported too long ago.
    #[default]
    Unknown,
    /// The device works.
    Healthy,
    /// The device does not work.
    Unhealthy,
}

/// A plugin's report on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// Pool.
    pub(crate) pool: String,
    /// Device.
    pub(crate) device: String,
    /// Health.
    pub(crate) health: Health,
    /// Text for people.
    pub(crate) message: String,
    /// Validity of the report.
    pub(crate) timeout: Duration,
}

/// The last report of every device, by driver, pool and device.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    devices: BTreeMap<(String, String, String), (Report, Instant)>,
}

/// The reports of a node's plugins, shared with the pods' tasks.
pub(crate) type SharedReports = watch::Sender<Reports>;

impl Health {
    /// Value of the API field.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::Healthy => "Healthy",
            Self::Unhealthy => "Unhealthy",
        }
    }
}

impl Reports {
    /// Stores the reports of `driver` at `now`. Returns whether anything except the time changed.
    pub(crate) fn update(&mut self, driver: &str, reports: Vec<Report>, now: Instant) -> bool {
        let mut changed = false;
        for report in reports {
            let key = (driver.to_owned(), report.pool.clone(), report.device.clone());
            let stale = self.get(driver, &report.pool, &report.device, now).0 != report.health;
            let old = self.devices.insert(key, (report.clone(), now));
            changed |= stale || old.is_none_or(|(old, _)| old != report);
        }
        changed
    }

    /// Health of a device and the plugin's message, as of `now`.
    pub(crate) fn get(
        &self,
        driver: &str,
        pool: &str,
        device: &str,
        now: Instant,
    ) -> (Health, Option<&str>) {
        let key = (driver.to_owned(), pool.to_owned(), device.to_owned());
        match self.devices.get(&key) {
            Some((report, at)) if now.duration_since(*at) <= report.timeout => {
                let message = Some(report.message.as_str()).filter(|message| !message.is_empty());
                (report.health, message)
            }
            _ => (Health::Unknown, None),
        }
    }

    /// Removes all reports of `driver`. Returns whether there were any.
    pub(crate) fn clear(&mut self, driver: &str) -> bool {
        let before = self.devices.len();
        self.devices.retain(|(owner, _, _), _| owner != driver);
        before != self.devices.len()
    }
}

/// Keeps the health stream of `plugin` open until the plugin is deregistered. Reopens it `retry`
/// after it ended or was rejected.
pub(crate) async fn follow_health(
    plugin: &PluginInstance,
    reports: &SharedReports,
    retry: Duration,
) {
    let driver = plugin.description.driver.as_str();
    loop {
        match plugin.deregistered.run_until_cancelled(stream(plugin, reports)).await {
            None => return,
            Some(Ok(())) => tracing::debug!(driver, "health stream ended"),
            Some(Err(status)) => tracing::debug!(driver, %status, "health stream failed"),
        }
        if plugin.deregistered.run_until_cancelled(tokio::time::sleep(retry)).await.is_none() {
            return;
        }
    }
}

/// Clears a driver's reports on drop. As in the kubelet, all instances of a driver share its
/// reports, and only the end of an opened stream clears them.
struct ClearOnDrop<'a> {
    driver: &'a str,
    reports: &'a SharedReports,
}

impl Drop for ClearOnDrop<'_> {
    fn drop(&mut self) {
        self.reports.send_if_modified(|reports| reports.clear(self.driver));
    }
}

async fn stream(plugin: &PluginInstance, reports: &SharedReports) -> Result<(), tonic::Status> {
    let driver = plugin.description.driver.as_str();
    let take = |batch: Vec<Report>| {
        reports.send_if_modified(|reports| reports.update(driver, batch, Instant::now()));
    };
    match plugin.description.health {
        HealthVersion::V1 => {
            let mut client = v1::dra_resource_health_client::DraResourceHealthClient::new(
                plugin.channel.clone(),
            );
            let request = v1::NodeWatchResourcesRequest {};
            let mut stream = client.node_watch_resources(request).await?.into_inner();
            let _clear_on_drop = ClearOnDrop { driver, reports };
            while let Some(message) = stream.message().await? {
                take(message.devices.into_iter().map(from_v1).collect());
            }
        }
        HealthVersion::V1Alpha1 => {
            let mut client = v1alpha1::dra_resource_health_client::DraResourceHealthClient::new(
                plugin.channel.clone(),
            );
            let request = v1alpha1::NodeWatchResourcesRequest {};
            let mut stream = client.node_watch_resources(request).await?.into_inner();
            let _clear_on_drop = ClearOnDrop { driver, reports };
            while let Some(message) = stream.message().await? {
                take(message.devices.into_iter().map(from_v1alpha1).collect());
            }
        }
    }
    Ok(())
}

fn from_v1(device: v1::DeviceHealth) -> Report {
    let health = match device.health() {
        v1::HealthStatus::Healthy => Health::Healthy,
        v1::HealthStatus::Unhealthy => Health::Unhealthy,
        v1::HealthStatus::Unknown => Health::Unknown,
    };
    let identity = device.device.unwrap_or_default();
    report(
        (identity.pool_name, identity.device_name),
        health,
        device.message,
        device.health_check_timeout_seconds,
    )
}

fn from_v1alpha1(device: v1alpha1::DeviceHealth) -> Report {
    let health = match device.health() {
        v1alpha1::HealthStatus::Healthy => Health::Healthy,
        v1alpha1::HealthStatus::Unhealthy => Health::Unhealthy,
        v1alpha1::HealthStatus::Unknown => Health::Unknown,
    };
    let identity = device.device.unwrap_or_default();
    report(
        (identity.pool_name, identity.device_name),
        health,
        device.message,
        device.health_check_timeout_seconds,
    )
}

fn report(
    (pool, device): (String, String),
    health: Health,
    mut message: String,
    seconds: i64,
) -> Report {
    if message.len() > MAX_MESSAGE_BYTES {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES - 3));
        message.push_str("...");
    }
    let timeout = match u64::try_from(seconds) {
        Ok(seconds) if seconds > 0 => Duration::from_secs(seconds),
        _ => DEFAULT_TIMEOUT,
    };
    Report { pool, device, health, message, timeout }
}

#[cfg(test)]
mod tests;
