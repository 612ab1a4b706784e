//! Metrics of the device plugin.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DeviceLabels {
    node: String,
    resource: String,
    health: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AllocationLabels {
    node: String,
    resource: String,
    result: &'static str,
}

/// Metrics of the device plugins of all nodes of the process.
#[derive(Debug, Default)]
pub(crate) struct PluginMetrics {
    devices: Family<DeviceLabels, Gauge>,
    allocations: Family<AllocationLabels, Counter>,
}

impl PluginMetrics {
    /// Makes the metrics and registers them.
    pub(super) fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "octavo_agent_plugin_devices",
            "Devices that the device plugin lists to the kubelet",
            metrics.devices.clone(),
        );
        registry.register(
            "octavo_agent_plugin_allocations",
            "Containers for which the kubelet asked for devices",
            metrics.allocations.clone(),
        );
        metrics
    }

    /// Sets how many devices of a resource a node lists.
    pub(crate) fn listed(&self, node: &str, resource: &str, healthy: usize, unhealthy: usize) {
        for (health, count) in [("healthy", healthy), ("unhealthy", unhealthy)] {
            let (node, resource) = (node.to_owned(), resource.to_owned());
            let labels = DeviceLabels { node, resource, health };
            self.devices.get_or_create(&labels).set(super::count(count));
        }
    }

    /// Counts an allocation for a container.
    pub(crate) fn allocated(&self, node: &str, resource: &str, is_ok: bool) {
        let result = if is_ok { "ok" } else { "error" };
        let (node, resource) = (node.to_owned(), resource.to_owned());
        self.allocations.get_or_create(&AllocationLabels { node, resource, result }).inc();
    }
}
