//! Evictions, nominations, leftovers, and the binder as a whole.

use super::fake_api::InjectedFault;
use super::*;

fn evict(pod: &PodRef, is_bound_by_budgets: bool) -> OpKind {
    OpKind::Evict(Evict {
        pod: pod.clone(),
        message: "its place is for gang train".to_owned(),
        reason: "PreemptionByScheduler",
        is_bound_by_budgets,
    })
}

#[tokio::test(start_paused = true)]
async fn victim_gets_a_condition_and_its_own_grace_period() {
    let api = FakeApi::default();
    let pod = put_pod(&api, "p");
    let mut harness = Harness::new(&api);
    assert_eq!(harness.carry_out(evict(&pod, false)).await, Ok(()));
    let object = api.object(&pod_path("p")).unwrap();
    assert!(object["metadata"]["deletionTimestamp"].is_string());
    let condition = &object["status"]["conditions"][0];
    assert_eq!(condition["type"], "DisruptionTarget");
    assert_eq!(condition["reason"], "PreemptionByScheduler");
    let since = condition["lastTransitionTime"].as_str().unwrap();
    assert!(since.parse::<jiff::Timestamp>().is_ok(), "{since}");
    let delete = api.seen().pop().unwrap();
    assert!(delete.body.contains("uid-p") && !delete.body.contains("grace"), "{}", delete.body);
    // Again: the pod is leaving already, so only the condition is written.
    assert_eq!(harness.carry_out(evict(&pod, false)).await, Ok(()));
    assert_eq!(api.writes().iter().filter(|write| write.starts_with("DELETE")).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn evicting_a_gone_or_replaced_pod_succeeds_and_spares_the_new_one() {
    let api = FakeApi::default();
    let mut harness = Harness::new(&api);
    put_pod(&api, "p");
    let earlier = PodRef { uid: "uid-earlier".into(), ..pod_ref("p") };
    for is_bound_by_budgets in [false, true] {
        assert_eq!(harness.carry_out(evict(&pod_ref("gone"), is_bound_by_budgets)).await, Ok(()));
        assert_eq!(harness.carry_out(evict(&earlier, is_bound_by_budgets)).await, Ok(()));
    }
    assert!(api.object(&pod_path("p")).unwrap()["metadata"]["deletionTimestamp"].is_null());
}

#[tokio::test(start_paused = true)]
async fn budget_429_is_distinguished_from_overload_429() {
    let api = FakeApi::default();
    let pod = put_pod(&api, "p");
    let mut harness = Harness::new(&api);
    api.inject(0, InjectedFault::Status(429));
    assert_eq!(harness.carry_out(evict(&pod, true)).await, Ok(()));
    assert_eq!(api.count(), 2, "asked again");
    let other = put_pod(&api, "q");
    api.forbid_evictions("The disruption budget web needs 3 healthy pods and has 3 currently");
    let failure = harness.carry_out(evict(&other, true)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Budget);
    assert!(failure.message.contains("budget web"), "{failure}");
    assert_eq!(api.count(), 3, "not asked again");
    assert!(api.object(&pod_path("q")).unwrap()["metadata"]["deletionTimestamp"].is_null());
}

#[tokio::test(start_paused = true)]
async fn eviction_is_retried_after_a_lost_response() {
    for fault in [InjectedFault::LostAfter, InjectedFault::LostBefore, InjectedFault::Status(500)] {
        for (is_bound_by_budgets, steps) in [(true, 1), (false, 2)] {
            for step in 0..steps {
                let api = FakeApi::default();
                let pod = put_pod(&api, "p");
                api.inject(step, fault);
                let mut harness = Harness::new(&api);
                assert_eq!(harness.carry_out(evict(&pod, is_bound_by_budgets)).await, Ok(()));
                let object = api.object(&pod_path("p")).unwrap();
                assert!(object["metadata"]["deletionTimestamp"].is_string(), "{fault:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_binding_writes_what_it_says_about_the_gang() {
    for fault in [None, Some(InjectedFault::LostAfter), Some(InjectedFault::LostBefore)] {
        let api = FakeApi::default();
        let pod = put_pod(&api, "p");
        if let Some(fault) = fault {
            api.inject(0, fault);
        }
        let mut harness = Harness::new(&api);
        let op = Bind { gang_placed: Some("{}".into()), ..bind(&pod, Vec::new()) };
        assert_eq!(harness.carry_out(OpKind::Bind(op)).await, Ok(()));
        let object = api.object(&pod_path("p")).unwrap();
        assert_eq!(object["metadata"]["annotations"]["octavo.dev/gang-placed"], "{}");
    }
}

#[tokio::test(start_paused = true)]
async fn nomination_is_written_and_cleared() {
    let api = FakeApi::default();
    let pod = put_pod(&api, "p");
    let mut harness = Harness::new(&api);
    let nominate =
        |node: Option<&str>| OpKind::Nominate { pod: pod.clone(), node: node.map(Into::into) };
    assert_eq!(harness.carry_out(nominate(Some(NODE))).await, Ok(()));
    let nominated = || api.object(&pod_path("p")).unwrap()["status"]["nominatedNodeName"].clone();
    assert_eq!(nominated(), NODE);
    assert_eq!(harness.carry_out(nominate(None)).await, Ok(()));
    assert_eq!(nominated(), Value::Null);
    let gone = OpKind::Nominate { pod: pod_ref("gone"), node: None };
    assert_eq!(harness.carry_out(gone).await.unwrap_err().kind, FailureKind::PodGone);
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_reserved_although_the_response_is_lost() {
    const DISK: &str = "/api/v1/persistentvolumes/disk";
    let api = FakeApi::default();
    let pod = put_pod(&api, "p");
    api.put(DISK, json!({"metadata": {"name": "disk", "uid": "uid-disk"}, "spec": {}}));
    let version = api.object(DISK).unwrap()["metadata"]["resourceVersion"].clone();
    let reserve = |claim: &str| OpKind::RequestVolumes {
        pod: pod.clone(),
        node: NODE.into(),
        writes: vec![VolumeWrite::Bind {
            volume: "disk".into(),
            version: version.as_str().unwrap().into(),
            claim: ObjectName::new("team", claim),
            claim_uid: format!("uid-{claim}").into(),
        }],
    };
    let mut harness = Harness::new(&api);
    api.inject(0, InjectedFault::LostAfter);
    assert_eq!(harness.carry_out(reserve("c")).await, Ok(()));
    assert_eq!(api.object(DISK).unwrap()["spec"]["claimRef"]["uid"], "uid-c");
    let failure = harness.carry_out(reserve("d")).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Conflict);
}

#[tokio::test(start_paused = true)]
async fn pod_with_another_uid_is_not_bound() {
    let api = FakeApi::default();
    put_pod(&api, "p");
    let claim = put_claim(&api, "c");
    let earlier = PodRef { uid: "uid-earlier".into(), ..pod_ref("p") };
    let mut harness = Harness::new(&api);
    let op = bind(&earlier, vec![write(&claim, &["gpu-0"])]);
    let failure = harness.carry_out(OpKind::Bind(op)).await.unwrap_err();
    assert_eq!((failure.kind, failure.unreleased), (FailureKind::PodGone, Vec::new()));
    assert_eq!(bound_to(&api, "p"), None);
    assert!(is_clean(&api, "c"));
}

#[tokio::test(start_paused = true)]
async fn pod_bound_elsewhere_keeps_its_node_and_frees_the_devices() {
    let api = FakeApi::default();
    let (pod, claim) = (put_pod(&api, "p"), put_claim(&api, "c"));
    api.edit(&pod_path("p"), |pod| pod["spec"]["nodeName"] = "elsewhere".into());
    let mut harness = Harness::new(&api);
    let op = bind(&pod, vec![write(&claim, &["gpu-0"])]);
    let failure = harness.carry_out(OpKind::Bind(op)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::AlreadyBound);
    assert!(failure.message.contains("elsewhere"), "{failure}");
    assert!(is_clean(&api, "c"));
}

#[tokio::test(start_paused = true)]
async fn claim_with_an_unrelated_change_is_still_allocated() {
    let api = FakeApi::default();
    let (pod, claim) = (put_pod(&api, "p"), put_claim(&api, "c"));
    api.edit(&claim_path("c"), |claim| {
        claim["metadata"]["finalizers"] = json!([responses::FINALIZER]);
    });
    let op = bind(&pod, vec![write(&seen(&api, "c"), &["gpu-0"])]);
    api.edit(&claim_path("c"), |claim| claim["metadata"]["labels"] = json!({"a": "b"}));
    drop(claim);
    let mut harness = Harness::new(&api);
    assert_eq!(harness.carry_out(OpKind::Bind(op)).await, Ok(()));
    assert!(is_taken(&api, "c", &pod));
}

#[tokio::test(start_paused = true)]
async fn claim_allocated_by_others_is_left_alone() {
    let theirs = json!({
        "allocation": {"devices": {"results": [{"request": "gpu", "driver": "gpu.nvidia.com",
            "pool": "far", "device": "gpu-5"}]}},
        "reservedFor": [{"resource": "pods", "name": "other", "uid": "uid-other"}],
    });
    for had_allocation in [false, true] {
        let api = FakeApi::default();
        let (pod, claim) = (put_pod(&api, "p"), put_claim(&api, "c"));
        let mut op = bind(&pod, vec![write(&claim, &["gpu-0"])]);
        if had_allocation {
            // Observed with devices of this node, then freed and reallocated elsewhere.
            let mut claim = (*claim).clone();
            claim.claim.allocation = Some(allocation(&["gpu-0"]).allocation);
            op.claims = vec![reserve_only(&Arc::new(claim))];
        }
        api.edit(&claim_path("c"), |claim| {
            claim["metadata"]["finalizers"] = json!([responses::FINALIZER]);
            claim["status"] = theirs.clone();
        });
        let mut harness = Harness::new(&api);
        let failure = harness.carry_out(OpKind::Bind(op)).await.unwrap_err();
        assert_eq!((failure.kind, failure.unreleased), (FailureKind::Conflict, Vec::new()));
        assert_eq!(bound_to(&api, "p"), None);
        let object = api.object(&claim_path("c")).unwrap();
        assert_eq!(object["status"], theirs, "{had_allocation}");
        assert!(has_finalizer(&object));
    }
}

/// What another client allocated for the pod meanwhile is in use: only the operation's own writes
/// are rolled back.
#[tokio::test(start_paused = true)]
async fn claim_that_others_allocated_for_the_same_pod_is_kept() {
    let users = [json!([]), json!([{"resource": "pods", "name": "p", "uid": "uid-p"}])];
    for users in users {
        let api = FakeApi::default();
        let (pod, claim) = (put_pod(&api, "p"), put_claim(&api, "c"));
        let theirs = json!({
            "allocation": {"devices": {"results": [{"request": "gpu", "driver": "gpu.nvidia.com",
                "pool": "far", "device": "gpu-5"}]}},
            "reservedFor": users,
        });
        api.edit(&claim_path("c"), |claim| {
            claim["metadata"]["finalizers"] = json!([responses::FINALIZER]);
            claim["status"] = theirs.clone();
        });
        let mut harness = Harness::new(&api);
        let op = bind(&pod, vec![write(&claim, &["gpu-0"])]);
        let failure = harness.carry_out(OpKind::Bind(op)).await.unwrap_err();
        assert_eq!((failure.kind, failure.unreleased), (FailureKind::Conflict, Vec::new()));
        let object = api.object(&claim_path("c")).unwrap();
        assert_eq!(object["status"], theirs);
        assert!(has_finalizer(&object));
    }
}

#[tokio::test(start_paused = true)]
async fn missing_deleted_or_recreated_claim_is_a_conflict() {
    let spoil: [fn(&FakeApi); 3] = [
        |api| api.remove(&claim_path("c")),
        |api| api.edit(&claim_path("c"), |claim| claim["metadata"]["uid"] = "another".into()),
        |api| {
            api.edit(&claim_path("c"), |claim| {
                claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                claim["metadata"]["finalizers"] = json!(["somebody/else"]);
            });
        },
    ];
    for (number, spoil) in spoil.iter().enumerate() {
        let api = FakeApi::default();
        let (pod, claim) = (put_pod(&api, "p"), put_claim(&api, "c"));
        spoil(&api);
        let before = api.object(&claim_path("c"));
        let mut harness = Harness::new(&api);
        let op = bind(&pod, vec![write(&claim, &["gpu-0"])]);
        let failure = harness.carry_out(OpKind::Bind(op)).await.unwrap_err();
        let expected = (FailureKind::Conflict, Vec::new());
        assert_eq!((failure.kind, failure.unreleased), expected, "{number}");
        assert_eq!(api.object(&claim_path("c")), before, "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn missing_feature_gate_is_named_in_the_error() {
    let api = FakeApi::default();
    let pod = put_pod(&api, "p");
    api.drop_extended_status();
    let mut harness = Harness::new(&api);
    let op = Bind { extended: Some(extended(&["gpu-0"])), ..bind(&pod, Vec::new()) };
    let failure = harness.carry_out(OpKind::Bind(op)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Rejected);
    assert!(failure.message.contains("DRAExtendedResource"), "{failure}");
    assert_eq!(made(&api), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn claim_of_an_earlier_attempt_is_replaced() {
    let api = FakeApi::default();
    let pod = put_pod(&api, "p");
    let mut harness = Harness::new(&api);
    let name = super::super::extended::name(&pod, 0);
    // It requests another class, as an attempt on another node may have done.
    api.put(
        &claim_path(&name),
        json!({
            "metadata": {"name": name, "uid": "old", "finalizers": [responses::FINALIZER],
                "annotations": {responses::EXTENDED_ANNOTATION: "true"},
                "ownerReferences": [{"uid": *pod.uid, "controller": true}]},
            "spec": {"devices": {"requests": [{"name": "container-0-request-0",
                "exactly": {"deviceClassName": "other", "count": 1}}]}},
            "status": {"allocation": {"devices": {"results": []}}},
        }),
    );
    let op = Bind { extended: Some(extended(&["gpu-0"])), ..bind(&pod, Vec::new()) };
    assert_eq!(harness.carry_out(OpKind::Bind(op)).await, Ok(()));
    assert_eq!(made(&api), std::slice::from_ref(&name));
    assert_ne!(api.object(&claim_path(&name)).unwrap()["metadata"]["uid"], "old");
    // A name that another client's claim has is left alone.
    let other = put_pod(&api, "q");
    let taken = super::super::extended::name(&other, 0);
    api.put(&claim_path(&taken), json!({"metadata": {"name": taken, "uid": "theirs"}}));
    let op = Bind { extended: Some(extended(&["gpu-1"])), ..bind(&other, Vec::new()) };
    assert_eq!(harness.carry_out(OpKind::Bind(op)).await, Ok(()));
    assert_eq!(api.object(&claim_path(&taken)).unwrap()["metadata"]["uid"], "theirs");
}

#[tokio::test(start_paused = true)]
async fn concurrency_drops_while_the_server_is_overloaded() {
    let api = FakeApi::default();
    let options = BinderOptions { max_in_flight: 8, ..BinderOptions::default() };
    api.interleave(vec![(20, 0); 200]);
    for number in 8..12 {
        api.inject(number, InjectedFault::Status(429));
    }
    let mut harness = Harness::with(&api, options);
    for number in 0..100 {
        let pod = put_pod(&api, &format!("p{number}"));
        harness.send(number, OpKind::Bind(bind(&pod, Vec::new()))).await;
    }
    for _ in 0..100 {
        assert_eq!(harness.outcome().await.result.map(drop), Ok(()));
    }
    assert_eq!(api.max_in_flight(), 8);
    assert_eq!(harness.binder.load.ops(), 0);
}

#[tokio::test(start_paused = true)]
async fn shutdown_finishes_ops_in_flight_and_rejects_queued_ones() {
    let api = FakeApi::default();
    api.interleave(vec![(50, 0); 2]);
    let options = BinderOptions { max_in_flight: 2, ..BinderOptions::default() };
    let mut harness = Harness::with(&api, options);
    for number in 0..5 {
        let pod = put_pod(&api, &format!("p{number}"));
        harness.send(number, OpKind::Bind(bind(&pod, Vec::new()))).await;
    }
    while api.count() < 2 {
        tokio::task::yield_now().await;
    }
    harness.stop.cancel();
    let mut results = std::collections::BTreeMap::new();
    for _ in 0..5 {
        let outcome = harness.outcome().await;
        results.insert(outcome.id.0, outcome.result.map(drop).map_err(|failure| failure.kind));
    }
    let refused = Err(FailureKind::NotLeader);
    let expected = [Ok(()), Ok(()), refused, refused, refused];
    assert_eq!(results.into_values().collect::<Vec<_>>(), expected);
    assert_eq!(api.writes().len(), 2);
    assert!(harness.binder.task.await.unwrap(), "all has its end");
}

#[tokio::test(start_paused = true)]
async fn op_aborted_at_shutdown_lists_its_claims() {
    let api = FakeApi::default();
    let (pod, claim) = (put_pod(&api, "p"), put_claim(&api, "c"));
    api.inject(1, InjectedFault::SilentAfter);
    let mut harness = Harness::new(&api);
    harness.send(1, OpKind::Bind(bind(&pod, vec![write(&claim, &["gpu-0"])]))).await;
    while api.count() < 2 {
        tokio::task::yield_now().await;
    }
    harness.stop.cancel();
    let failure = harness.outcome().await.result.unwrap_err();
    assert_eq!(failure.unreleased, [ObjectName::new("team", "c")]);
    assert!(!harness.binder.task.await.unwrap(), "it may still be carried out");
    assert!(is_taken(&api, "c", &pod), "the write was done, as listed");
}

#[tokio::test(start_paused = true)]
async fn no_request_outlives_the_lease() {
    let api = FakeApi::default();
    let pod = put_pod(&api, "p");
    api.inject(0, InjectedFault::SilentBefore);
    let begun = tokio::time::Instant::now();
    let end = begun + Duration::from_secs(3);
    let lease = move || {
        let time_left = end.checked_duration_since(tokio::time::Instant::now())?;
        Some(TermRemaining { time_left, since: begun })
    };
    let metrics = Metrics::new(&mut Registry::default());
    let (options, stop) = (BinderOptions::default(), CancellationToken::new());
    let leadership = Leadership::new(lease);
    let mut binder = Binder::start(api.client(), options, leadership, metrics, stop);
    let op = WriteOp { id: OpId(1), kind: OpKind::Bind(bind(&pod, Vec::new())) };
    binder.ops.send(op).await.unwrap();
    while api.count() == 0 {
        tokio::task::yield_now().await;
    }
    let failure = binder.results.recv().await.unwrap().result.unwrap_err();
    assert_eq!(failure.kind, FailureKind::NotLeader);
    assert_eq!(api.count(), 3, "the binding, and two looks at what became of it");
    assert_eq!(bound_to(&api, "p"), None);
}
