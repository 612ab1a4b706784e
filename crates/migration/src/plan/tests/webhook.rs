use serde_json::{Value, json};

use super::fixtures::{cluster, node, section};
use crate::Options;
use crate::plan::webhook::{LEFT_OUT, LEFT_OUT_PODS};
use crate::plan::{MigrationPlan, Webhook, plan};

fn deployment(name: &str, labels: Value, annotations: Value) -> Value {
    json!({
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"template": {
            "metadata": {"labels": labels, "annotations": annotations},
            "spec": {"containers": [{"name": "main"}]},
        }},
    })
}

fn shared(name: &str) -> Value {
    deployment(name, json!({}), json!({"gpu-memory": "2000"}))
}

fn planned(workloads: &[Value], options: &Options, serves_dra: bool) -> MigrationPlan {
    let mut objects = vec![node("a", json!({}), json!({}))];
    objects.extend(workloads.iter().cloned());
    let mut cluster = cluster(&objects);
    cluster.serves_dra = serves_dra;
    plan(&cluster, options)
}

#[test]
fn each_workload_says_what_the_webhook_would_do() {
    let mut in_reservation = shared("d");
    in_reservation["metadata"]["namespace"] = "kai-resource-reservation".into();
    let queue = json!({"kai.scheduler/queue": "research"});
    let workloads = [
        shared("a"),
        deployment("b", json!({"octavo.dev/translate": "false"}), json!({"gpu-memory": "2000"})),
        deployment("c", json!({}), json!({"gpu-memory": "many"})),
        in_reservation,
        deployment("e", queue, json!({})),
    ];
    let plan = planned(&workloads, &Options::default(), true);
    let found: Vec<Option<Webhook>> = plan.workloads.iter().map(|found| found.webhook).collect();
    assert_eq!(
        found,
        [
            Some(Webhook::LeavesOut),
            Some(Webhook::Translates),
            Some(Webhook::LeavesOut),
            Some(Webhook::Refuses),
            Some(Webhook::NotNeeded),
        ]
    );
    assert_eq!(
        section(&plan, "WORKLOADS"),
        "  Deployment kai-resource-reservation/d is translated
    annotation gpu-memory: 2000 -> claim gpu of ResourceClaimTemplate d-gpu-cf94ba42fa: 1 GPU with 2000Mi
    the webhook would leave its pods out, as the chart has it
  Deployment team-a/a is translated
    annotation gpu-memory: 2000 -> claim gpu of ResourceClaimTemplate a-gpu-cf94ba42fa: 1 GPU with 2000Mi
    the webhook would translate its pods, without a change of the workload (translation.enabled)
  Deployment team-a/b is translated
    annotation gpu-memory: 2000 -> claim gpu of ResourceClaimTemplate b-gpu-cf94ba42fa: 1 GPU with 2000Mi
    the webhook would leave its pods out, as the chart has it
  Deployment team-a/c is refused
    annotation gpu-memory: many is refused because it is no whole number; write the memory in MiB, without a unit (NotANumber)
    the webhook would refuse its pods
  Deployment team-a/e is translated
    label kai.scheduler/queue: research -> removed, Octavo has no queues: quota and fair shares are for Kueue or a ResourceQuota
    its pods need no translation, and pass the webhook as they are"
    );
    let text = serde_json::to_value(&plan.workloads[1]).unwrap();
    assert_eq!(text["webhook"], "translates");
}

#[test]
fn the_steps_name_the_webhook_where_it_serves_pods() {
    let of = |workloads: &[Value], options: &Options| {
        let plan = planned(workloads, options, true);
        let what: Vec<String> = plan.steps.into_iter().map(|step| step.what).collect();
        what.iter().find(|what| what.starts_with("Translate the manifests")).unwrap().clone()
    };
    let begin = "Translate the manifests of the workloads for HAMi and KAI Scheduler, and keep the originals.";
    let end = "in the command that installs Octavo, and docs/migration.md has its limits.";
    let value = "--set 'translation.enabled=true'";
    let whose = |whose: &str, values: &str| {
        format!(
            "{begin} Or leave manifests as they are: the webhook translates {whose} as they come. It needs {values} {end}"
        )
    };
    let bad = deployment("bad", json!({}), json!({"gpu-memory": "many"}));
    let none = Options::default();
    assert_eq!(of(&[shared("a")], &none), whose("the pods of this workload", value));
    assert_eq!(of(&[shared("a"), shared("b")], &none), whose("the pods of all 2 workloads", value));
    assert_eq!(
        of(&[shared("a"), bad.clone()], &none),
        whose("the pods of 1 of 2 workloads", value)
    );
    assert_eq!(of(&[bad], &none), begin);
    let octavo = Options { scheduler_name: Some("octavo".to_owned()), ..Options::default() };
    let values = format!("{value} --set 'translation.schedulerName=octavo'");
    assert_eq!(of(&[shared("a")], &octavo), whose("the pods of this workload", &values));
    let plan = planned(&[shared("a")], &none, true);
    let last = "Delete the old workloads, and apply the translated ones. With the webhook, delete only their pods: it translates \
                those that come.";
    assert!(plan.steps.iter().any(|step| step.what == last), "{:?}", plan.steps);
}

#[test]
fn a_server_without_claims_has_no_use_for_the_webhook() {
    let plan = planned(&[shared("a")], &Options::default(), false);
    assert_eq!(plan.workloads[0].webhook, None);
    assert!(plan.steps.iter().all(|step| !step.what.contains("webhook")), "{:?}", plan.steps);
}

#[test]
fn what_is_left_out_is_as_in_the_chart() {
    let values = include_str!("../../../../../charts/octavo/values.yaml");
    let line = values.lines().find(|line| line.trim().starts_with("excludedNamespaces:")).unwrap();
    let own = ["kube-system", "octavo-system"];
    let others: Vec<&str> = LEFT_OUT.into_iter().filter(|name| !own.contains(name)).collect();
    assert_eq!(line.trim(), format!("excludedNamespaces: [{}]", others.join(", ")));
    let webhook = include_str!("../../../../../charts/octavo/templates/controller/webhook.yaml");
    assert!(webhook.contains("list \"kube-system\" .Release.Namespace"));
    for (key, value) in LEFT_OUT_PODS {
        assert!(webhook.contains(&format!("{{key: {key}, operator: NotIn,")), "{key}");
        assert!(webhook.contains(value), "{value}");
    }
}
