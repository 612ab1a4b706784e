use std::sync::Mutex;
use std::time::Duration;

use octavo_api::NodeHealth;
use octavo_api::node_health::OrderWord;
use octavo_testkit::{ScriptedApi, failure};
use serde_json::{Value, json};

use super::{NODE_1, NODE_2, object};
use crate::connect::Timeout;
use crate::error::ViewError;
use crate::health::{HealthError, Ordered, devices, order, question, wait};

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn stored(text: &str) -> Value {
    serde_json::to_value(object::<NodeHealth>(text)).unwrap()
}

/// A server with one object. Applies are answered by the function.
fn server(
    text: &'static str,
    apply: impl Fn(&Value) -> (u16, Value) + Send + Sync + 'static,
) -> ScriptedApi {
    ScriptedApi::new(move |request| {
        if request.method() == "PATCH" {
            let head = request.headers().get("content-type").unwrap();
            assert_eq!(head, "application/apply-patch+yaml");
            let query = request.uri().query().unwrap_or_default();
            assert!(query.contains("fieldManager=octavo.dev%2Fhealth-orders"), "{query}");
            assert!(query.contains("force=true"), "{query}");
            return apply(&serde_json::from_slice(request.body()).unwrap());
        }
        (200, stored(text))
    })
}

fn applied(api: &ScriptedApi) -> Vec<Value> {
    let requests = api.requests();
    let patches = requests.iter().filter(|request| request.method() == "PATCH");
    patches.map(|request| serde_json::from_slice(request.body()).unwrap()).collect()
}

#[tokio::test]
async fn an_order_has_the_next_number_and_its_reason() {
    let api = server(NODE_1, |_| (200, stored(NODE_1)));
    let gpus = words(&["1", "GPU-1-2"]);
    let ordered = order(&api.client(), "n-1", &gpus, OrderWord::Fence, "loud fan").await.unwrap();
    let numbers: Vec<_> = ordered.iter().map(|it| (&*it.gpu, it.number)).collect();
    assert_eq!(numbers, [("gpu-1", 1), ("gpu-2", 1)]);
    let order = json!({"word": "Fence", "number": 1, "reason": "loud fan"});
    assert_eq!(
        applied(&api),
        [json!({
            "apiVersion": "octavo.dev/v1alpha1",
            "kind": "NodeHealth",
            "metadata": {"name": "n-1", "resourceVersion": "7"},
            "spec": {"devices": [
                {"uuid": "GPU-1-1", "order": order},
                {"uuid": "GPU-1-2", "order": order},
            ]},
        })],
        "permits and evictions are the controller's"
    );
}

#[tokio::test]
async fn a_later_order_counts_on_from_the_last_one() {
    let api = server(NODE_2, |_| (200, stored(NODE_2)));
    let ordered = order(&api.client(), "n-2", &[], OrderWord::Retire, "worn out").await.unwrap();
    assert_eq!(ordered[0].number, 6, "order 5 waits, and 4 was carried out");
}

/// A node with an open order of its first GPU.
const TWO: &str = "
metadata: {name: n-1, resourceVersion: '1'}
spec: {devices: [{uuid: GPU-a, order: {word: Fence, number: 3, reason: by another}}]}
status:
  devices:
    - {uuid: GPU-a, name: gpu-0, state: Healthy, since: 2026-01-01T00:00:00Z, order: 2}
    - {uuid: GPU-b, name: gpu-1, state: Healthy, since: 2026-01-01T00:00:00Z, order: 9}
";

#[tokio::test]
async fn orders_of_other_gpus_stay() {
    let api = server(TWO, |_| (200, stored(TWO)));
    order(&api.client(), "n-1", &words(&["gpu-1"]), OrderWord::Fence, "x").await.unwrap();
    let devices = &applied(&api)[0]["spec"]["devices"];
    assert_eq!(
        *devices,
        json!([
            {"uuid": "GPU-a", "order": {"word": "Fence", "number": 3, "reason": "by another"}},
            {"uuid": "GPU-b", "order": {"word": "Fence", "number": 10, "reason": "x"}},
        ])
    );
}

#[tokio::test]
async fn an_object_that_changed_meanwhile_is_read_again() {
    let conflicts = Mutex::new(2);
    let api = server(TWO, move |_| {
        let mut left = conflicts.lock().unwrap();
        if *left == 0 {
            return (200, stored(TWO));
        }
        *left -= 1;
        failure(409, "the object has been modified")
    });
    order(&api.client(), "n-1", &[], OrderWord::Fence, "x").await.unwrap();
    let methods: Vec<String> = api.requests().iter().map(|it| it.method().to_string()).collect();
    assert_eq!(methods, ["GET", "PATCH", "GET", "PATCH", "GET", "PATCH"]);
    let busy = server(TWO, |_| failure(409, "the object has been modified"));
    let error = order(&busy.client(), "n-1", &[], OrderWord::Fence, "x").await.unwrap_err();
    assert!(error.hint().unwrap().contains("try again"), "{error}");
    let denied = server(TWO, |_| failure(403, "no right"));
    let error = order(&denied.client(), "n-1", &[], OrderWord::Fence, "x").await.unwrap_err();
    assert!(error.hint().unwrap().contains("patch nodehealths"), "{error}");
    assert_eq!(applied(&denied).len(), 1);
}

#[tokio::test]
async fn an_unknown_gpu_is_refused_and_nothing_is_written() {
    let api = server(TWO, |_| (200, stored(TWO)));
    let gpus = words(&["gpu-0", "gpu-7"]);
    let error = order(&api.client(), "n-1", &gpus, OrderWord::Retire, "x").await.unwrap_err();
    assert!(matches!(&error, ViewError::Health(HealthError::NoGpu { gpu, .. }) if gpu == "gpu-7"));
    assert_eq!(error.hint().unwrap(), "its GPUs are: gpu-0 (GPU-a), gpu-1 (GPU-b)");
    assert_eq!(applied(&api), [] as [Value; 0]);
}

#[test]
fn retiring_and_whole_nodes_are_confirmed() {
    let health: NodeHealth = object(TWO);
    let asks = |gpus: &[&str], word| {
        let gpus = devices(&health, &words(gpus)).unwrap();
        question(&health, &gpus, word)
    };
    assert_eq!(asks(&["0"], OrderWord::Fence), None);
    assert_eq!(asks(&["0"], OrderWord::Release), None);
    let retire = asks(&["0"], OrderWord::Retire).unwrap();
    assert!(retire.starts_with("Retire gpu-0 of node n-1? They stay out of service"), "{retire}");
    let fence = asks(&[], OrderWord::Fence).unwrap();
    assert!(fence.starts_with("Fence gpu-0, gpu-1 of node n-1, all its GPUs?"), "{fence}");
    assert!(asks(&["0", "1"], OrderWord::Release).is_some());
    let empty: NodeHealth = object("{metadata: {name: n-1}, spec: {}}");
    assert!(devices(&empty, &[]).is_err(), "an agent that has reported nothing yet");
}

fn open() -> Vec<Ordered> {
    let ordered = |uuid: &str, gpu: &str, number| Ordered {
        uuid: uuid.to_owned(),
        gpu: gpu.to_owned(),
        number,
    };
    vec![ordered("GPU-a", "gpu-0", 3), ordered("GPU-b", "gpu-1", 9)]
}

#[tokio::test]
async fn the_state_is_shown_once_the_agent_has_carried_out_the_order() {
    let reads = Mutex::new(0);
    let api = ScriptedApi::new(move |_| {
        let mut reads = reads.lock().unwrap();
        *reads += 1;
        if *reads == 1 {
            return failure(500, "etcd is away");
        }
        let mut health = stored(TWO);
        health["status"]["devices"][0]["order"] = 3.into();
        health["status"]["devices"][0]["state"] = "Fenced".into();
        (200, health)
    });
    let outcomes = wait(&api.client(), "n-1", open(), Timeout(None)).await;
    let states: Vec<_> = outcomes.iter().map(|it| it.gpu.as_ref().unwrap().state.clone()).collect();
    assert_eq!(states, ["Fenced", "Healthy"]);
    assert_eq!(api.requests().len(), 2);
}

#[tokio::test]
async fn an_agent_that_does_not_answer_leaves_the_order_open() {
    let api = server(TWO, |_| (200, stored(TWO)));
    let limit = Timeout(Some(Duration::from_millis(300)));
    let outcomes = wait(&api.client(), "n-1", open(), limit).await;
    assert_eq!(outcomes[0].gpu, None);
    assert_eq!(outcomes[1].gpu.as_ref().map(|gpu| gpu.order), Some(9));
}
