use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::super::fake_api::DEADLINE;
use super::super::fake_plugin::FakePlugin;
use super::super::plugins::{DraVersion, Introduction, Plugins};
use super::*;

fn report_of(device: &str, health: Health) -> Report {
    report(("n".to_owned(), device.to_owned()), health, String::new(), 0)
}

#[test]
fn reports_that_change_nothing_are_no_news() {
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
    assert!(long.message.len() <= LONGEST_MESSAGE && long.message.ends_with("..."));
    assert_eq!(long.timeout, Duration::from_secs(5));
}

async fn until(reports: &SharedReports, health: Health) {
    let mut changes = reports.subscribe();
    let is = |reports: &Reports| reports.get("d", "n", "gpu-0", Instant::now()).0 == health;
    tokio::time::timeout(DEADLINE, changes.wait_for(is)).await.unwrap().unwrap();
}

async fn stream_comes_back(health: HealthVersion) {
    let folder = tempfile::tempdir().unwrap();
    let plugin = FakePlugin::start(folder.path(), "d");
    let introduction = Introduction {
        driver: "d".to_owned(),
        endpoint: plugin.registration_socket(),
        dra: DraVersion::V1,
        health,
    };
    let (plugins, parent) = (Plugins::new(), CancellationToken::new());
    let instance = plugins.add(Path::new("/r"), introduction, &parent).unwrap();
    let reports = SharedReports::new(Reports::default());
    let followed = follow(&instance, &reports, Duration::from_millis(10));
    let story = async {
        plugin.say(Health::Healthy);
        until(&reports, Health::Healthy).await;
        plugin.end_streams();
        plugin.say(Health::Unhealthy);
        until(&reports, Health::Unhealthy).await;
        plugins.remove(Path::new("/r"));
    };
    tokio::join!(followed, story);
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
async fn a_dead_instance_that_is_tried_in_vain_does_not_spoil_what_the_living_one_told() {
    let folder = tempfile::tempdir().unwrap();
    let (plugins, parent) = (Plugins::new(), CancellationToken::new());
    let introduction = |endpoint| Introduction {
        driver: "d".to_owned(),
        endpoint,
        dra: DraVersion::V1,
        health: HealthVersion::V1,
    };
    let nobody = folder.path().join("dead.sock");
    let dead = plugins.add(Path::new("/dead"), introduction(nobody), &parent).unwrap();
    let reports = SharedReports::new(Reports::default());
    let now = Instant::now();
    reports.send_modify(|known| {
        known.update("d", vec![report_of("gpu-0", Health::Healthy)], now);
    });
    assert!(stream(&dead, &reports).await.is_err());
    assert_eq!(reports.borrow().get("d", "n", "gpu-0", now).0, Health::Healthy);
}
