use tokio_util::sync::CancellationToken;

use super::*;
use crate::kubelet::fake_plugin::FakePlugin;

fn info(type_: &str, versions: &[&str]) -> PluginInfo {
    PluginInfo {
        r#type: type_.to_owned(),
        name: "gpu.nvidia.com".to_owned(),
        endpoint: "/p/dra.sock".to_owned(),
        supported_versions: versions.iter().map(|version| (*version).to_owned()).collect(),
    }
}

#[test]
fn the_authority_is_the_percent_encoded_path_and_keeps_the_at_sign() {
    let path = Path::new("/var/lib/kubelet/plugins_registry/gpu.nvidia.com@reg.sock");
    assert_eq!(
        authority_of(path),
        "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fgpu.nvidia.com@reg.sock"
    );
    assert_eq!(authority_of(Path::new("a b?#")), "a%20b%3F%23");
}

#[test]
fn the_newest_common_service_is_chosen() {
    let socket = Path::new("/r/a@reg.sock");
    let chosen = |versions: &[&str]| {
        let description = describe_plugin(socket, &info("DRAPlugin", versions)).unwrap();
        (description.dra, description.health)
    };
    assert_eq!(
        chosen(&["v1beta1.DRAPlugin", "v1.DRAPlugin", "v1.DRAResourceHealth"]),
        (DraVersion::V1, HealthVersion::V1)
    );
    assert_eq!(chosen(&["v1beta1.DRAPlugin"]), (DraVersion::V1Beta1, HealthVersion::V1Alpha1));
}

#[test]
fn other_plugin_types_and_unknown_services_are_refused_in_words() {
    let socket = Path::new("/r/a@reg.sock");
    let device_plugin = describe_plugin(socket, &info("DevicePlugin", &["v1beta1"])).unwrap_err();
    assert!(device_plugin.contains("no handler registered for plugin type: DevicePlugin"));
    let old = describe_plugin(socket, &info("DRAPlugin", &["1.0.0"])).unwrap_err();
    assert!(old.contains("none of services supported by the plugin"), "{old}");
}

#[tokio::test]
async fn a_plugin_sees_the_kubelets_authorities_on_its_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = FakePlugin::start(folder.path(), "gpu.nvidia.com");
    let socket = plugin.registration_socket();
    let mut registration = Registration::dial(&socket).await.unwrap();
    let description = registration.info().await.unwrap().unwrap();
    registration.notify(None).await.unwrap();
    assert_eq!(plugin.wait_for_notification().await, (true, String::new()));
    let expected = authority_of(&socket);
    assert!(expected.starts_with("%2F") && expected.ends_with("gpu.nvidia.com@reg.sock"));
    assert_eq!(plugin.authorities(), [expected.clone(), expected]);

    let plugins = crate::kubelet::plugins::Plugins::new();
    let instance = plugins.add(&socket, description, &CancellationToken::new()).unwrap();
    let claim = crate::kubelet::plugins::calls::ClaimRef {
        namespace: "ns".to_owned(),
        name: "c".to_owned(),
        uid: "u".to_owned(),
    };
    let prepared = crate::kubelet::plugins::calls::prepare(&instance, &[claim]).await.unwrap();
    assert_eq!(prepared["u"][0].cdi_ids, ["k8s.gpu.nvidia.com/claim=u-gpu-0"]);
    assert_eq!(plugin.authorities().last().map(String::as_str), Some("localhost"));
}

#[tokio::test]
async fn a_socket_whose_name_lacks_the_at_sign_is_refused_with_the_remedy() {
    let error = Registration::dial(Path::new("/r/gpu.nvidia.com-reg.sock")).await.unwrap_err();
    assert!(error.to_string().contains("<driver>@reg.sock"), "{error}");
}
