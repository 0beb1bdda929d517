//! Offers the GPUs of the host to its kubelet, so that pods can ask for them before a vendor's driver is there: kubelet's
//! device plugin API, `v1beta1`.
//!
//! ```text
//!   kubelet.sock is new ─▶ socket of our own ─▶ Registration.Register ─▶ kubelet calls ListAndWatch, Allocate
//! ```
//!
//! Kubelet removes every socket of its directory when it starts, so a socket of another inode is a kubelet that knows of
//! no plugin. A vendor's plugin in the same directory does all this better: then this one is silent.

mod grpc;
mod message;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use millpond_api::byoh::facts::GpuDevice;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use grpc::{Answer, Status};
use message::Allocation;

/// Where kubelet and its plugins have their sockets.
const SOCKETS: &str = "var/lib/kubelet/device-plugins";
/// Kubelet's own.
const KUBELET: &str = "kubelet.sock";
/// Our sockets begin with this.
const OWN: &str = "millpond-";
/// Version of the API.
const VERSION: &str = "v1beta1";
/// Time between two looks at kubelet's socket and at the devices.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Offers devices until the token is cancelled.
pub(crate) async fn run(root: PathBuf, gpus: Vec<GpuDevice>, stop: CancellationToken) {
    let mut plugin = Plugin::new(root, gpus);
    if plugin.resources.is_empty() {
        return;
    }
    let mut look = tokio::time::interval(LOOK_AGAIN);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = look.tick() => plugin.look().await,
        }
    }
}

/// The devices of one resource, and which of them are there.
struct Resource {
    name: String,
    root: PathBuf,
    devices: BTreeMap<String, GpuDevice>,
    present: watch::Sender<BTreeSet<String>>,
}

impl Resource {
    /// Reads which devices are on the bus now.
    fn look(&self) {
        let is_there = |address: &&String| self.root.join("sys/bus/pci/devices").join(address).exists();
        let now: BTreeSet<String> = self.devices.keys().filter(is_there).cloned().collect();
        self.present.send_if_modified(|known| {
            let is_new = *known != now;
            *known = now;
            is_new
        });
    }

    fn socket(&self) -> String {
        let plain = self.name.replace(|symbol: char| !symbol.is_ascii_alphanumeric(), "-");
        format!("{OWN}{plain}.sock")
    }

    /// All devices, with what is known of each.
    fn list(&self, present: &BTreeSet<String>) -> Vec<u8> {
        let device = |(id, gpu): (&String, &GpuDevice)| (id.clone(), present.contains(id), gpu.numa_node);
        let all: Vec<_> = self.devices.iter().map(device).collect();
        message::devices(all.iter().map(|(id, healthy, numa)| (id.as_str(), *healthy, *numa))).into_bytes()
    }

    fn allocate(&self, request: &[u8]) -> Result<Vec<u8>, Status> {
        let invalid = |why: String| Status::new(Status::INVALID_ARGUMENT, why);
        let containers = message::requested(request).map_err(|error| invalid(error.to_string()))?;
        let mut allocations = Vec::new();
        for ids in containers {
            if let Some(unknown) = ids.iter().find(|id| !self.devices.contains_key(*id)) {
                return Err(invalid(format!("there is no device {unknown}")));
            }
            let variable = self.name.to_uppercase().replace(|symbol: char| !symbol.is_ascii_alphanumeric(), "_");
            allocations.push(Allocation {
                variables: BTreeMap::from([(format!("PCI_RESOURCE_{variable}"), ids.join(","))]),
                files: ids.iter().flat_map(|id| self.files(id)).collect(),
            });
        }
        Ok(message::allocated(&allocations).into_bytes())
    }

    /// The device files that drivers have made for a device.
    fn files(&self, address: &str) -> Vec<String> {
        let names = fs::read_dir(self.root.join("sys/bus/pci/devices").join(address).join("drm"));
        let names = names.into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut files: Vec<String> = names.map(|name| format!("/dev/dri/{name}")).collect();
        let information = self.root.join("proc/driver/nvidia/gpus").join(address).join("information");
        let information = fs::read_to_string(information).unwrap_or_default();
        if let Some(minor) = information.lines().find_map(|line| line.strip_prefix("Device Minor:")) {
            files.extend([format!("/dev/nvidia{}", minor.trim()), "/dev/nvidiactl".into(), "/dev/nvidia-uvm".into()]);
        }
        files.retain(|path| self.root.join(path.trim_start_matches('/')).exists());
        files.sort();
        files
    }

    /// Answers a call of kubelet's.
    fn handle(self: &Arc<Self>, path: &str, request: &[u8]) -> Answer {
        match path {
            "/v1beta1.DevicePlugin/GetDevicePluginOptions" | "/v1beta1.DevicePlugin/PreStartContainer" => {
                grpc::answer(&[])
            }
            "/v1beta1.DevicePlugin/ListAndWatch" => {
                let (own, present) = (Arc::clone(self), self.present.subscribe());
                let first = Some((own, present, true));
                grpc::stream(
                    futures::stream::unfold(first, async |state| {
                        let (own, mut present, is_first) = state?;
                        if !is_first && present.changed().await.is_err() {
                            return None;
                        }
                        let list = own.list(&present.borrow_and_update());
                        Some((list, Some((own, present, false))))
                    })
                    .boxed(),
                )
            }
            "/v1beta1.DevicePlugin/Allocate" => match self.allocate(request) {
                Ok(allocated) => grpc::answer(&allocated),
                Err(status) => grpc::refuse(&status),
            },
            other => grpc::refuse(&Status::new(Status::UNIMPLEMENTED, format!("there is no method {other}"))),
        }
    }
}

/// A socket with its server; both go with it.
struct Served {
    path: PathBuf,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
        // Kubelet may have removed it.
        let _ = fs::remove_file(&self.path);
    }
}

struct Plugin {
    folder: PathBuf,
    resources: Vec<Arc<Resource>>,
    /// What is offered, and to which kubelet.
    served: BTreeMap<String, (KubeletSocket, Served)>,
    /// What was logged last of a resource, so that it is logged once.
    told: BTreeMap<String, String>,
}

impl Plugin {
    fn new(root: PathBuf, gpus: Vec<GpuDevice>) -> Self {
        let mut by_resource: BTreeMap<String, BTreeMap<String, GpuDevice>> = BTreeMap::new();
        for gpu in gpus.into_iter().filter(|gpu| !gpu.resource.is_empty()) {
            by_resource.entry(gpu.resource.clone()).or_default().insert(gpu.address.clone(), gpu);
        }
        let resource = |(name, devices)| {
            let present = watch::Sender::new(BTreeSet::new());
            Arc::new(Resource { name, root: root.clone(), devices, present })
        };
        let resources = by_resource.into_iter().map(resource).collect();
        Self { folder: root.join(SOCKETS), resources, served: BTreeMap::new(), told: BTreeMap::new() }
    }

    /// Registers at a kubelet that is new, and looks after the devices.
    async fn look(&mut self) {
        let kubelet = KubeletSocket::of(&self.folder.join(KUBELET));
        for resource in self.resources.clone() {
            resource.look();
            let Some(kubelet) = kubelet else {
                self.served.remove(&resource.name);
                continue;
            };
            if let Some(other) = vendors_plugin(&self.folder, &resource.name) {
                self.served.remove(&resource.name);
                self.tell(&resource.name, format!("{other} offers {}: this agent does not", resource.name));
                continue;
            }
            if self.served.get(&resource.name).is_some_and(|(known, _)| *known == kubelet) {
                continue;
            }
            // Its socket goes before the next one of that name comes.
            self.served.remove(&resource.name);
            match self.offer(&resource).await {
                Ok(served) => {
                    self.served.insert(resource.name.clone(), (kubelet, served));
                    self.tell(&resource.name, format!("offers {} to kubelet", resource.name));
                }
                Err(error) => self.tell(&resource.name, format!("cannot offer {} to kubelet: {error}", resource.name)),
            }
        }
    }

    fn tell(&mut self, resource: &str, what: String) {
        if self.told.get(resource) != Some(&what) {
            tracing::info!("{what}");
            self.told.insert(resource.to_owned(), what);
        }
    }

    async fn offer(&self, resource: &Arc<Resource>) -> io::Result<Served> {
        let endpoint = resource.socket();
        let path = self.folder.join(&endpoint);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        let own = Arc::clone(resource);
        let handle = move |path: String, request: Bytes| {
            let own = Arc::clone(&own);
            async move { own.handle(&path, &request) }
        };
        let served = Served { path, task: tokio::spawn(grpc::serve(listener, handle)) };
        let request = message::register(VERSION, &endpoint, &resource.name).into_bytes();
        grpc::call(&self.folder.join(KUBELET), "/v1beta1.Registration/Register", request).await?;
        Ok(served)
    }
}

/// Tells one kubelet's socket from the next one's: device, inode and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KubeletSocket(u64, u64, (i64, i64));

impl KubeletSocket {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self(metadata.dev(), metadata.ino(), (metadata.ctime(), metadata.ctime_nsec())))
    }
}

/// The socket of another plugin for devices of the same vendor.
fn vendors_plugin(folder: &Path, resource: &str) -> Option<String> {
    let vendor = resource.split('.').find(|part| ["nvidia", "amd", "intel"].contains(part))?;
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let is_socket = |name: &String| Path::new(name).extension().is_some_and(|end| end == "sock");
    let mut others = names.filter(|name| is_socket(name) && name != KUBELET && !name.starts_with(OWN));
    others.find(|name| name.to_lowercase().contains(vendor))
}

#[cfg(test)]
mod tests {
    use kubelet::Kubelet;

    use super::*;

    /// A kubelet that writes down who registers.
    mod kubelet {
        use super::*;

        pub(super) struct Kubelet {
            task: tokio::task::JoinHandle<()>,
            pub(super) registered: tokio::sync::mpsc::UnboundedReceiver<Bytes>,
        }

        impl Kubelet {
            pub(super) fn start(folder: &Path) -> Self {
                fs::create_dir_all(folder).unwrap();
                for entry in fs::read_dir(folder).unwrap().flatten() {
                    fs::remove_file(entry.path()).unwrap();
                }
                let listener = UnixListener::bind(folder.join(KUBELET)).unwrap();
                let (sender, registered) = tokio::sync::mpsc::unbounded_channel();
                let handle = move |path: String, request: Bytes| {
                    assert_eq!(path, "/v1beta1.Registration/Register");
                    sender.send(request).unwrap();
                    async { grpc::answer(&[]) }
                };
                Self { task: tokio::spawn(grpc::serve(listener, handle)), registered }
            }
        }

        impl Drop for Kubelet {
            fn drop(&mut self) {
                self.task.abort();
            }
        }
    }

    fn host() -> (tempfile::TempDir, Plugin, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("sys/bus/pci/devices/0000:3b:00.0/drm/card0")).unwrap();
        fs::create_dir_all(root.path().join("dev/dri")).unwrap();
        fs::write(root.path().join("dev/dri/card0"), "").unwrap();
        let gpu = GpuDevice {
            address: "0000:3b:00.0".into(),
            vendor_id: "10de".into(),
            device_id: "1eb8".into(),
            name: String::new(),
            resource: "nvidia.com/gpu".into(),
            numa_node: None,
            driver: String::new(),
        };
        let plugin = Plugin::new(root.path().to_owned(), vec![gpu]);
        let folder = root.path().join(SOCKETS);
        (root, plugin, folder)
    }

    #[tokio::test]
    async fn every_kubelet_that_starts_is_told_of_the_devices_once() {
        let (_root, mut plugin, folder) = host();
        plugin.look().await;
        assert!(plugin.served.is_empty(), "there is no kubelet");
        for _ in 0..2 {
            let mut kubelet = Kubelet::start(&folder);
            plugin.look().await;
            plugin.look().await;
            let expected = message::register(VERSION, "millpond-nvidia-com-gpu.sock", "nvidia.com/gpu").into_bytes();
            assert_eq!(kubelet.registered.recv().await.unwrap(), expected);
            assert!(kubelet.registered.try_recv().is_err(), "once");
            let socket = folder.join("millpond-nvidia-com-gpu.sock");
            grpc::call(&socket, "/v1beta1.DevicePlugin/Allocate", b"\x0a\x0e\x0a\x0c0000:3b:00.0".to_vec())
                .await
                .unwrap();
            let unknown = grpc::call(&socket, "/v1beta1.DevicePlugin/Allocate", b"\x0a\x03\x0a\x01x".to_vec()).await;
            assert!(unknown.unwrap_err().to_string().contains("there is no device x"));
        }
        fs::remove_file(folder.join(KUBELET)).unwrap();
        plugin.look().await;
        assert!(fs::read_dir(&folder).unwrap().next().is_none(), "its socket goes with kubelet's");
    }

    #[tokio::test]
    async fn a_vendors_plugin_is_left_alone() {
        let (_root, mut plugin, folder) = host();
        let mut kubelet = Kubelet::start(&folder);
        let vendors = UnixListener::bind(folder.join("nvidia-gpu.sock")).unwrap();
        plugin.look().await;
        assert!(kubelet.registered.try_recv().is_err() && plugin.served.is_empty());
        drop(vendors);
        fs::remove_file(folder.join("nvidia-gpu.sock")).unwrap();
        plugin.look().await;
        assert!(kubelet.registered.recv().await.is_some(), "it is gone, and kubelet has no devices");
    }

    #[tokio::test]
    async fn devices_that_leave_the_bus_are_unhealthy() {
        let (root, plugin, _) = host();
        let resource = &plugin.resources[0];
        resource.look();
        let of = |healthy| message::devices([("0000:3b:00.0", healthy, None)]).into_bytes();
        let list = || resource.list(&resource.present.borrow());
        assert_eq!(list(), of(true));
        let allocated = resource.allocate(b"\x0a\x0e\x0a\x0c0000:3b:00.0").unwrap();
        let expected = message::allocated(&[Allocation {
            variables: BTreeMap::from([("PCI_RESOURCE_NVIDIA_COM_GPU".to_owned(), "0000:3b:00.0".to_owned())]),
            files: vec!["/dev/dri/card0".to_owned()],
        }]);
        assert_eq!(allocated, expected.into_bytes());
        fs::remove_dir_all(root.path().join("sys/bus/pci/devices/0000:3b:00.0")).unwrap();
        resource.look();
        assert_eq!(list(), of(false));
    }
}
