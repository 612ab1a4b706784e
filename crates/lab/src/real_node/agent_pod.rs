//! The agent of real nodes: the pod of the chart's `DaemonSet`.
//!
//! It runs as the chart has it, from an image, but for the kernel's files about the driver. Of these
//! each machine has one set, and a simulated driver needs its own. So the agent reads them in the
//! folder of the simulated hardware, which is the one above the driver's root. The chart mounts that
//! folder. Here it can be written, because the simulated driver keeps its state in files.

use std::path::Path;

use anyhow::Context as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::mounts::{DRIVER_ROOT, FABRIC_DIR};
use crate::cluster::apply;

/// The chart's agent, rendered for real nodes.
const CHART: &str = include_str!("../../manifests/agent.yaml");

/// Path in containers at which the simulated driver finds its machine.
const SIMULATOR_DIR: &str = "/run/octavo-simulator";

/// Path in containers of the memory that nodes of a fabric share.
const SIMULATED_FABRIC_DIR: &str = "/run/octavo-fabric";

/// Name of the volume with the driver's root, and where the chart mounts it.
const DRIVER_VOLUME: &str = "driver-root";
const DRIVER_MOUNT: &str = "/driver-root";

/// Name of the agent's config file in its `ConfigMap`.
const CONFIG_FILE: &str = "agent.yaml";

/// Applies the objects of the agent.
pub(crate) async fn apply(client: &kube::Client) -> anyhow::Result<()> {
    apply::apply(client, &objects()?).await.context("apply the agent of the real nodes")
}

fn objects() -> anyhow::Result<Vec<DynamicObject>> {
    let mut objects = apply::parse(CHART).context("read the rendered agent")?;
    for object in &mut objects {
        match apply::kind(object) {
            "ConfigMap" => use_simulated_files(&mut object.data)?,
            "DaemonSet" => let_hardware_be_written(&mut object.data)?,
            kind => anyhow::bail!("the rendered agent has a {kind}"),
        }
    }
    Ok(objects)
}

/// Points the agent's config at the simulated kernel files, and gives every container with a GPU the
/// folder in which the simulated libraries read what the real ones ask the kernel.
fn use_simulated_files(object: &mut Value) -> anyhow::Result<()> {
    let text = object.pointer_mut(&format!("/data/{CONFIG_FILE}")).context("no config file")?;
    let mut config: Value = serde_saphyr::from_str(text.as_str().unwrap_or_default())
        .context("read the agent's config file")?;
    let hardware = Path::new(DRIVER_MOUNT);
    config["procRoot"] = json!(hardware.join("proc"));
    config["sysRoot"] = json!(hardware.join("sys"));
    let libraries = Path::new(DRIVER_ROOT).join("usr/lib64");
    // The link to the fabric's folder leads nowhere in a container.
    config["mounts"] = json!([
        {"hostPath": libraries, "containerPath": SIMULATOR_DIR, "readOnly": false},
        {"hostPath": FABRIC_DIR, "containerPath": SIMULATED_FABRIC_DIR, "readOnly": false},
    ]);
    *text = serde_saphyr::to_string(&config).context("write the agent's config file")?.into();
    Ok(())
}

/// Lets the simulated driver write into the folder above its root.
fn let_hardware_be_written(object: &mut Value) -> anyhow::Result<()> {
    let pod = object.pointer_mut("/spec/template/spec").context("a DaemonSet without pods")?;
    named(pod, "/containers/0/volumeMounts")?["readOnly"] = false.into();
    Ok(())
}

/// The item of a list that is about the driver's root.
fn named<'a>(pod: &'a mut Value, list: &str) -> anyhow::Result<&'a mut Value> {
    let items = pod.pointer_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
    let mut items = items.filter(|item| item["name"] == DRIVER_VOLUME);
    items.next().with_context(|| format!("the agent's pod has no {DRIVER_VOLUME} in {list}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::real_node::mounts::HARDWARE_DIR;

    #[test]
    fn only_the_driver_s_files_are_others_than_the_chart_has() {
        let objects = objects().unwrap();
        let of_kind = |kind: &str| {
            objects.iter().find(|object| apply::kind(object) == kind).map(|object| &object.data)
        };
        let config = &of_kind("ConfigMap").unwrap()["data"][CONFIG_FILE];
        let config: Value = serde_saphyr::from_str(config.as_str().unwrap()).unwrap();
        assert_eq!(config["driverRoot"], "/run/nvidia/driver");
        assert_eq!(config["driverRootSeen"], "/driver-root/driver");
        assert_eq!(config["procRoot"], "/driver-root/proc");
        assert_eq!(config["hookDir"], "/var/lib/octavo/bin");
        let pod = &of_kind("DaemonSet").unwrap()["spec"]["template"]["spec"];
        let chart: Vec<Value> = serde_saphyr::from_multiple(CHART).unwrap();
        let chart = chart.iter().find(|object| object["kind"] == "DaemonSet").unwrap();
        let mut expected = chart["spec"]["template"]["spec"].clone();
        let volume = named(&mut expected, "/volumes").unwrap();
        assert_eq!(volume["hostPath"]["path"], HARDWARE_DIR, "the folder above the driver's root");
        named(&mut expected, "/containers/0/volumeMounts").unwrap()["readOnly"] = false.into();
        assert_eq!(*pod, expected);
    }
}
