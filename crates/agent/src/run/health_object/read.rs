//! The node's object as the API server has it. Requests of checkpoints are read one by one, since a later controller may have others.

use kube::core::DynamicObject;
use octavo_api::node_health::{NodeHealth, NodeHealthSpec};
use serde_json::{Value, json};

/// The object without requests of checkpoints, and these.
pub(super) fn read(
    mut object: DynamicObject,
) -> Result<(NodeHealth, Vec<Value>), serde_json::Error> {
    let mut spec = object.data.get_mut("spec").map_or_else(|| json!({}), Value::take);
    let requests = spec.as_object_mut().and_then(|spec| spec.remove("checkpoints"));
    let requests = match requests {
        Some(Value::Array(requests)) => requests,
        _ => Vec::new(),
    };
    let spec: NodeHealthSpec = serde_json::from_value(spec)?;
    // A later agent may have written what this one does not know. It is written again.
    let status = object.data.get_mut("status").map(Value::take);
    let status = status.and_then(|status| serde_json::from_value(status).ok());
    Ok((NodeHealth { metadata: object.metadata, spec, status }, requests))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_later_version_wrote_hides_nothing_else() {
        let object = json!({
            "metadata": {"name": "n", "generation": 3},
            "spec": {
                "devices": [{"uuid": "GPU-1", "order": {"word": "Fence", "number": 2}}],
                "checkpoints": [{"uid": "u-1", "signal": {"signal": "SIGQUIT"}}, "nonsense"],
            },
            "status": {"checkpoints": [{"uid": "u-1", "outcome": "Postponed"}]},
        });
        let (read, requests) = read(serde_json::from_value(object).unwrap()).unwrap();
        assert_eq!(read.metadata.generation, Some(3));
        assert_eq!(read.spec.devices[0].uuid, "GPU-1");
        assert_eq!((requests.len(), read.status), (2, None));
        let empty = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
        assert_eq!(super::read(empty).unwrap().1, Vec::<Value>::new());
    }
}
