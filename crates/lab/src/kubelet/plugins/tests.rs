use super::*;

fn description(endpoint: &str) -> PluginDescription {
    PluginDescription {
        driver: "gpu.nvidia.com".to_owned(),
        endpoint: PathBuf::from(endpoint),
        dra: DraVersion::V1,
        health: HealthVersion::V1Alpha1,
    }
}

#[tokio::test]
async fn last_registered_instance_wins_until_it_is_removed() {
    let (plugins, parent) = (Plugins::new(), CancellationToken::new());
    assert!(plugins.get("gpu.nvidia.com").is_err());
    plugins.add(Path::new("/r/old@reg.sock"), description("/p/old.sock"), &parent).unwrap();
    let new =
        plugins.add(Path::new("/r/new@reg.sock"), description("/p/new.sock"), &parent).unwrap();
    let endpoint = || plugins.get("gpu.nvidia.com").map(|i| i.description.endpoint.clone());
    assert_eq!(endpoint(), Ok(PathBuf::from("/p/new.sock")));
    plugins.remove(Path::new("/r/new@reg.sock"));
    assert!(new.deregistered.is_cancelled());
    assert_eq!(endpoint(), Ok(PathBuf::from("/p/old.sock")));
    plugins.remove(Path::new("/r/old@reg.sock"));
    assert_eq!(endpoint(), Err(NotRegistered("gpu.nvidia.com".to_owned())));
}

#[tokio::test]
async fn instance_whose_socket_vanished_blocks_no_registration() {
    let (plugins, attempt) = (Plugins::new(), CancellationToken::new());
    plugins.add(Path::new("/r/a@reg.sock"), description("/p/dra.sock"), &attempt).unwrap();
    attempt.cancel();
    assert!(plugins.get("gpu.nvidia.com").is_err());
    let (socket, again) = (Path::new("/r/a@reg.sock"), CancellationToken::new());
    let instance = plugins.add(socket, description("/p/dra.sock"), &again).unwrap();
    assert!(Arc::ptr_eq(&instance, &plugins.get("gpu.nvidia.com").unwrap()));
}

#[tokio::test]
async fn an_instance_cannot_take_the_endpoint_of_another() {
    let (plugins, parent) = (Plugins::new(), CancellationToken::new());
    plugins.add(Path::new("/r/a@reg.sock"), description("/p/dra.sock"), &parent).unwrap();
    let again = plugins.add(Path::new("/r/b@reg.sock"), description("/p/dra.sock"), &parent);
    assert!(matches!(again, Err(AddError::EndpointTaken { .. })));
}
