//! What makes a [`SystemMachine`] one that can be a node: containerd as a service, kubelet and kubeadm as their packages
//! bring them, a network for pods, and an image.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::machines::SystemMachine;
use crate::real::{NODE_PARTS, Part};
use crate::real_node::{NodePrograms, REAL, containerd_config, kubelet_configuration, pod_network};

const CONTAINERD_UNIT: &str = "[Unit]\nDescription=containerd\nAfter=network.target\n\n[Service]\n\
                               ExecStart=/usr/local/bin/containerd\nType=notify\nDelegate=yes\nKillMode=process\n\
                               Restart=always\nRestartSec=5\nLimitNOFILE=infinity\n\n[Install]\n\
                               WantedBy=multi-user.target\n";
const KUBELET_UNIT: &str = "[Unit]\nDescription=kubelet\nAfter=network-online.target\n\n[Service]\n\
                            ExecStart=/usr/local/bin/kubelet\nRestart=always\nStartLimitInterval=0\nRestartSec=10\n\n\
                            [Install]\nWantedBy=multi-user.target\n";
/// How kubeadm's package has kubelet started. It counts for a unit of the same name in `/etc`, too.
const KUBEADM_DROP_IN: &str = "[Service]\n\
    Environment=\"KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
    --kubeconfig=/etc/kubernetes/kubelet.conf\"\n\
    Environment=\"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml\"\n\
    EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\nExecStart=\n\
    ExecStart=/usr/local/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS\n";

/// What kubelet needs to be told on such a machine: it has control groups of its own, though of version 1.
pub fn system_kubelet_configuration() -> Value {
    let mut configuration = kubelet_configuration();
    if let Some(fields) = configuration.as_object_mut() {
        for field in ["cgroupsPerQOS", "enforceNodeAllocatable"] {
            fields.remove(field);
        }
    }
    configuration
}

impl NodePrograms {
    /// Puts them on a machine that is off, as their packages would: kubelet is enabled, and waits for a configuration.
    pub fn install_on(&self, machine: &mut SystemMachine) -> Result<()> {
        let images = machine.folder().join("containerd");
        fs::create_dir_all(&images).context("make a folder of a node")?;
        // Not on the overlay of the machine: containerd mounts overlays of its own there.
        machine.bind(&images, "/var/lib/containerd", true);
        machine.bind(self.parts.cache(), REAL, false);
        for part in NODE_PARTS {
            let program = self.on_machine(&self.parts.path(part)?)?;
            machine.link(&format!("usr/local/bin/{}", part.name), &program)?;
        }
        machine.write("etc/containerd/config.toml", &containerd_config(Path::new("/usr/lib/cni")))?;
        machine.write("etc/cni/net.d/10-pods.conflist", &pod_network(machine.address())?)?;
        machine.unit("containerd.service", CONTAINERD_UNIT, Some("multi-user.target"))?;
        machine.unit("kubelet.service", KUBELET_UNIT, Some("multi-user.target"))?;
        machine.write("usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", KUBEADM_DROP_IN)
    }

    /// Imports the image of every pod into the containerd of a machine that runs. It is still there after a reboot.
    pub fn import_busybox(&self, machine: &SystemMachine) -> Result<()> {
        let archive = machine.folder().join("image.tar");
        self.busybox().write(&machine.folder().join("layout"), &archive)?;
        fs::copy(&archive, machine.path("tmp/image.tar")?).context("copy an image")?;
        machine
            .sh(&format!("{} --namespace k8s.io images import /tmp/image.tar && rm /tmp/image.tar", Part::CTR.name))?;
        Ok(())
    }
}
