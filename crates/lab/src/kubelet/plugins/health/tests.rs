use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::kubelet::fake_api::TEST_TIMEOUT;
use crate::kubelet::fake_plugin::FakePlugin;
use crate::kubelet::plugins::{DraVersion, PluginDescription, Plugins};

fn report_of(device: &str, health: Health) -> Report {
    report(("n".to_owned(), device.to_owned()), health, String::new(), 0)
}

#[test]
fn unchanged_reports_are_not_changes() {
    let (mut reports, now) = (Reports::default(), Instant::now());
    assert!(reports.update("d", vec![report_of("gpu-0", Health::Healthy)], now));
    assert!(!reports.update("d", vec![report_of("gpu-0", Health::Healthy)], now));
    assert!(reports.update("d", vec![report_of("gpu-0", Health::Unhealthy)], now));
    assert_eq!(reports.get("d", "n", "gpu-0", now).0, Health::Unhealthy);
    assert_eq!(reports.get("other", "n", "gpu-0", now).0, Health::Unknown);
    assert!(reports.clear("d"));
    assert!(!reports.clear("d"));
}

#[test]
fn a_report_counts_for_its_time_only() {
    let (mut reports, now) = (Reports::default(), Instant::now());
    reports.update("d", vec![report_of("gpu-0", Health::Healthy)], now);
    let later = now + DEFAULT_TIMEOUT;
    assert_eq!(reports.get("d", "n", "gpu-0", later).0, Health::Healthy);
    let too_late = later + Duration::from_millis(1);
    assert_eq!(reports.get("d", "n", "gpu-0", too_late).0, Health::Unknown);
    let again = vec![report_of("gpu-0", Health::Healthy)];
    assert!(reports.update("d", again, too_late), "coming back from unknown is news");
}

#[test]
fn long_messages_are_cut_where_a_character_ends() {
    let long = report((String::new(), String::new()), Health::Healthy, "é".repeat(600), 5);
    assert!(long.message.len() <= MAX_MESSAGE_BYTES && long.message.ends_with("..."));
    assert_eq!(long.timeout, Duration::from_secs(5));
}

async fn wait_for_health(reports: &SharedReports, health: Health) {
    let mut changes = reports.subscribe();
    let is = |reports: &Reports| reports.get("d", "n", "gpu-0", Instant::now()).0 == health;
    tokio::time::timeout(TEST_TIMEOUT, changes.wait_for(is)).await.unwrap().unwrap();
}

async fn stream_comes_back(health: HealthVersion) {
    let folder = tempfile::tempdir().unwrap();
    let plugin = FakePlugin::start(folder.path(), "d");
    let description = PluginDescription {
        driver: "d".to_owned(),
        endpoint: plugin.registration_socket(),
        dra: DraVersion::V1,
        health,
    };
    let (plugins, parent) = (Plugins::new(), CancellationToken::new());
    let instance = plugins.add(Path::new("/r"), description, &parent).unwrap();
    let reports = SharedReports::new(Reports::default());
    let followed = follow_health(&instance, &reports, Duration::from_millis(10));
    let scenario = async {
        plugin.report_health(Health::Healthy);
        wait_for_health(&reports, Health::Healthy).await;
        plugin.end_streams();
        plugin.report_health(Health::Unhealthy);
        wait_for_health(&reports, Health::Unhealthy).await;
        plugins.remove(Path::new("/r"));
    };
    tokio::join!(followed, scenario);
    assert_eq!(reports.borrow().get("d", "n", "gpu-0", Instant::now()).0, Health::Unknown);
    assert!(plugin.streams_opened() >= 2);
}

#[tokio::test]
async fn a_health_stream_that_ends_is_opened_again() {
    stream_comes_back(HealthVersion::V1).await;
}

#[tokio::test]
async fn a_plugin_without_version_1_is_followed_by_version_1alpha1() {
    stream_comes_back(HealthVersion::V1Alpha1).await;
}

#[tokio::test]
async fn failed_stream_to_a_dead_instance_keeps_known_health() {
    let folder = tempfile::tempdir().unwrap();
    let (plugins, parent) = (Plugins::new(), CancellationToken::new());
    let description = |endpoint| PluginDescription {
        driver: "d".to_owned(),
        endpoint,
        dra: DraVersion::V1,
        health: HealthVersion::V1,
    };
    let dead_socket = folder.path().join("dead.sock");
    let dead = plugins.add(Path::new("/dead"), description(dead_socket), &parent).unwrap();
    let reports = SharedReports::new(Reports::default());
    let now = Instant::now();
    reports.send_modify(|known| {
        known.update("d", vec![report_of("gpu-0", Health::Healthy)], now);
    });
    assert!(stream(&dead, &reports).await.is_err());
    assert_eq!(reports.borrow().get("d", "n", "gpu-0", now).0, Health::Healthy);
}
