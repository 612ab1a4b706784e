use octavo_api::names::CLASS_GPU;
use octavo_view::output;

use super::*;

fn validation() -> Validation {
    let offer = Some(Offer::Claims { class: CLASS_GPU, devices: 8, scheduler: None });
    let ready = |component| Finding::ready(component, "as it should be");
    let without =
        |component| Finding::not_tried(component, "no free GPU (the scheduler says: none)");
    let broken = Finding::failed(Component::Cuda, "cuInit: CUDA_ERROR_UNKNOWN", "reboot");
    let mut sick =
        Findings { components: vec![ready(Component::Driver), ready(Component::Toolkit), broken] };
    sick.skip(&[Component::Plugin], Component::Cuda);
    let node = |name: &str, components: Vec<Finding>| NodeReport {
        node: name.to_owned(),
        offer: offer.clone(),
        findings: Findings { components },
    };
    let busy = [ready(Component::Driver)].into_iter().chain(Component::OF_GPU.map(without));
    let nodes = vec![
        node("a", Component::ALL.map(ready).to_vec()),
        node("b", sick.components),
        node("c", busy.collect()),
    ];
    Validation { nodes }
}

#[test]
fn a_table_has_a_line_for_each_node_and_each_reason() {
    let text = validation_text(&validation(), false, false);
    assert_eq!(
        text,
        "\
NODE  MODE  DRIVER  TOOLKIT    CUDA       PLUGIN
a     dra   ready   ready      ready      ready
b     dra   ready   ready      failed     not tried
c     dra   ready   not tried  not tried  not tried

b: cuda: failed: cuInit: CUDA_ERROR_UNKNOWN
  remedy: reboot
b: cuda is not ready: plugin was not tried
c: no free GPU (the scheduler says: none): toolkit, cuda and plugin were not tried
"
    );
    let wide = validation_text(&validation(), true, false);
    assert!(wide.contains("a: driver: ready: as it should be\n"), "{wide}");
}

#[test]
fn the_worst_component_decides() {
    let mut validation = validation();
    assert_eq!(validation.status(), ValidateStatus::Failed);
    validation.nodes.remove(1);
    assert_eq!(validation.status(), ValidateStatus::NotTried);
    validation.nodes.remove(1);
    assert_eq!(validation.status(), ValidateStatus::Ready);
}

#[test]
fn programs_read_mode_and_components_of_each_node() {
    let text = output::json("Validation", &validation()).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let node = &json["nodes"][1];
    assert_eq!(json["kind"], "Validation");
    assert_eq!((&node["offer"]["mode"], &node["offer"]["devices"]), (&"dra".into(), &8.into()));
    assert_eq!(node["components"][2]["component"], "cuda");
    assert_eq!(node["components"][2]["state"], "failed");
    assert_eq!(node["components"][3]["state"], "notTried");
}

#[test]
fn the_results_of_a_pod_come_back_as_they_were() {
    let findings = validation().nodes.remove(1).findings;
    let text = serde_json::to_string(&findings).unwrap();
    assert_eq!(serde_json::from_str::<Findings>(&text).unwrap(), findings);
}
