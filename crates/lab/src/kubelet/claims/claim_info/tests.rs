use super::*;

fn claim(name: &str, uid: &str) -> UsableClaim {
    UsableClaim {
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        drivers: BTreeSet::from(["gpu.nvidia.com".to_owned()]),
    }
}

fn device(request: &str, id: &str) -> Device {
    Device { requests: vec![request.to_owned()], cdi_ids: vec![id.to_owned()], ..Device::default() }
}

fn uids(uids: &[&str]) -> BTreeSet<String> {
    uids.iter().map(|uid| (*uid).to_owned()).collect()
}

#[test]
fn a_claim_of_two_pods_is_prepared_once_and_unprepared_after_the_last() {
    let mut cache = ClaimInfoCache::default();
    assert_eq!(cache.reserve("pod-1", &claim("c", "u")), Ok(true));
    cache.set_prepared(&uids(&["u"]));
    assert_eq!(cache.reserve("pod-2", &claim("c", "u")), Ok(false));
    assert!(cache.release("pod-1").is_empty());
    let last: Vec<_> = cache.release("pod-2").into_iter().map(|info| info.uid).collect();
    assert_eq!(last, ["u"]);
    assert_eq!(cache.release("pod-2").len(), 1, "until forgotten, unprepare can be tried again");
    cache.remove("u");
    assert_eq!(cache, ClaimInfoCache::default());
}

#[test]
fn a_claim_whose_unprepare_failed_is_prepared_again_for_the_next_pod() {
    let mut cache = ClaimInfoCache::default();
    cache.reserve("pod-1", &claim("c", "u")).unwrap();
    cache.set_prepared(&uids(&["u"]));
    cache.release("pod-1");
    assert_eq!(cache.reserve("pod-2", &claim("c", "u")), Ok(true));
}

#[test]
fn a_reused_name_is_refused_while_the_old_claim_is_held() {
    let mut cache = ClaimInfoCache::default();
    cache.reserve("pod-1", &claim("c", "old")).unwrap();
    let error = cache.reserve("pod-2", &claim("c", "new")).unwrap_err();
    assert!(error.to_string().contains("different UID old"));
    cache.remove("old");
    assert_eq!(cache.reserve("pod-2", &claim("c", "new")), Ok(true));
}

#[test]
fn restart_keeps_users_and_devices_and_prepares_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dra_state.json");
    assert_eq!(ClaimInfoCache::load(&path).unwrap(), ClaimInfoCache::default());
    let mut cache = ClaimInfoCache::default();
    cache.reserve("pod-1", &claim("c", "u")).unwrap();
    cache.record("u", "gpu.nvidia.com", vec![device("gpu", "a.b/c=d")]);
    cache.set_prepared(&uids(&["u"]));
    cache.save(&path).unwrap();

    let mut reloaded = ClaimInfoCache::load(&path).unwrap();
    assert_eq!(reloaded.reserve("pod-1", &claim("c", "u")), Ok(true));
    assert_eq!(reloaded.orphans(&uids(&["pod-2"])), uids(&["pod-1"]));
    assert_eq!(reloaded.claim_keys_of("pod-1"), uids(&["ns/c"]));
    let info = reloaded.get("ns", "c").unwrap();
    assert_eq!(info.devices(Some("gpu")).count(), 1);
}

#[test]
fn requests_select_devices_and_alternatives_count_as_their_request() {
    let mut cache = ClaimInfoCache::default();
    cache.reserve("pod-1", &claim("c", "u")).unwrap();
    let devices = vec![device("gpu", "a.b/c=0"), device("other", "a.b/c=1")];
    cache.record("u", "gpu.nvidia.com", devices);
    let ids = |request: Option<&str>| {
        let request = request.map(ToOwned::to_owned);
        cache.cdi_ids("ns", &[ContainerRequest { claim: "c".to_owned(), request }])
    };
    assert_eq!(ids(Some("gpu")), ["a.b/c=0"]);
    assert_eq!(ids(Some("other/small")), ["a.b/c=1"]);
    assert_eq!(ids(None), ["a.b/c=0", "a.b/c=1"]);
}
