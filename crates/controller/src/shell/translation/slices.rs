//! Watches the slices of GPUs.

use futures::StreamExt as _;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use octavo_api::names::DRIVER;
use octavo_kube_io::admin::Check;
use octavo_migration::{GpuModel, Models};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::shell::watches::PAGE;
use crate::translation::models::ClusterModels;

/// Watches the models until `stop`. They are `None` until the slices were read once; the check passes then.
pub(super) fn watch(
    client: &Client,
    fixed: &[GpuModel],
    is_read: Check,
    stop: &CancellationToken,
) -> watch::Receiver<Option<Models>> {
    let (sender, receiver) = watch::channel(None);
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    // A slice may have many devices, and the first list of a large cluster must fit into the memory.
    let config =
        watcher::Config::default().fields(&format!("spec.driver={DRIVER}")).page_size(PAGE);
    let mut events = watcher(slices, config).default_backoff().boxed();
    let mut models = ClusterModels::new(fixed);
    let forward = async move {
        // While slices are listed again, the older models count.
        let mut is_listing = true;
        let mut problem = String::new();
        while let Some(event) = events.next().await {
            let has_changed = match event {
                Ok(Event::Init) => {
                    models.clear();
                    is_listing = true;
                    false
                }
                Ok(Event::InitApply(slice) | Event::Apply(slice)) => models.put(&slice),
                Ok(Event::Delete(slice)) => models.remove(&slice),
                Ok(Event::InitDone) => {
                    is_listing = false;
                    is_read.pass();
                    true
                }
                Err(error) => {
                    let text = error.to_string();
                    if text != problem {
                        tracing::warn!(error = %text, "cannot watch ResourceSlices; it is tried again");
                        problem = text;
                    }
                    continue;
                }
            };
            problem.clear();
            if has_changed && !is_listing {
                sender.send_replace(Some(models.models()));
            }
        }
    };
    super::spawn(stop, forward);
    receiver
}
