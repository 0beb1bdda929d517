//! Stand-ins for `systemctl`, `kubeadm` and `kubelet` on a machine.
//!
//! `systemctl` and `kubeadm` are scripts. Kubelet is the test's own binary under that name, so that its process is known
//! by it: it speaks the API as kubelet does, from the certificate signing request to the heartbeats of its Node.
//!
//! Faults are files below `/run/faults`: `kubeadm join` fails while there is one named `kubeadm`, and `systemctl VERB`
//! stops while there is one named `systemctl-VERB`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::Machine;

/// Where the stand-ins are.
const FOLDER: &str = "opt/stand-in";
/// Commands of a machine are found here; real parts of a node come before their stand-ins.
pub(super) const PATH: &str = "/opt/node/bin:/opt/stand-in/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Arguments of a stand-in, one a line: a test binary takes none itself.
pub const ARGUMENTS: &str = "MILLPOND_TEST_STAND_IN";

/// Whether this process was started as a stand-in.
pub fn is_stand_in() -> bool {
    std::env::var_os(ARGUMENTS).is_some()
}

/// Units run in sessions of their own; what systemd keeps in cgroups is kept in files.
const SYSTEMCTL: &str = r#"#!/bin/sh
# A stand-in for systemctl: daemon-reload, enable, disable, start, stop, is-active.
units=/etc/systemd/system wants=/etc/systemd/system/multi-user.target.wants pids=/run/units
mkdir -p $pids
echo "$@" >> /run/systemctl.log
verb=$1; shift
if [ -e /run/faults/systemctl-$verb ]; then
    touch /run/faults/systemctl-$verb.reached
    while [ -e /run/faults/systemctl-$verb ]; do sleep 0.05; done
fi
now=; [ "$1" = --now ] && { now=1; shift; }
unit=$1
case "$unit" in *.service) ;; ?*) unit=$unit.service ;; esac
start() {
    [ -f $units/$unit ] || { echo "Unit $unit not found." >&2; exit 5; }
    pid=$(cat $pids/$unit 2>/dev/null)
    [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null && return
    line=$(sed -n 's/^ExecStart=//p' $units/$unit)
    env -u BYOH_PLAN_STEP setsid sh -c "exec $line" > /run/$unit.log 2>&1 < /dev/null &
    echo $! > $pids/$unit
}
stop() {
    pid=$(cat $pids/$unit 2>/dev/null)
    rm -f $pids/$unit
    [ -n "$pid" ] || return 0
    kill "$pid" 2>/dev/null
    while [ -d "/proc/$pid" ] && ! grep -q '^State:.*Z' "/proc/$pid/status" 2>/dev/null; do sleep 0.02; done
}
case "$verb" in
    daemon-reload|reset-failed) ;;
    enable)
        [ -f $units/$unit ] || { echo "Unit $unit does not exist." >&2; exit 1; }
        mkdir -p $wants; ln -sf $units/$unit $wants/$unit
        [ -z "$now" ] || start ;;
    disable) rm -f $wants/$unit; [ -z "$now" ] || stop ;;
    start) start ;;
    restart) stop; start ;;
    stop) stop ;;
    is-active) pid=$(cat $pids/$unit 2>/dev/null); [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null ;;
    *) echo "Unknown command verb $verb." >&2; exit 1 ;;
esac
"#;

/// Joins with a bootstrap kubeconfig (`kubeadm join --discovery-file F --node-name N`) and undoes it.
const KUBEADM: &str = r#"#!/bin/sh
# A stand-in for kubeadm: join --discovery-file FILE [--node-name NAME], reset --force.
set -e
echo "kubeadm $*" >> /run/kubeadm.log
verb=$1; shift
case "$verb" in
    join)
        [ ! -e /run/faults/kubeadm ] || { echo "error execution phase preflight: couldn't validate the identity of the API Server" >&2; exit 1; }
        file= name=$(hostname)
        while [ $# -gt 0 ]; do
            case "$1" in --discovery-file) file=$2; shift ;; --node-name) name=$2; shift ;; esac
            shift
        done
        mkdir -p /etc/kubernetes/pki /etc/kubernetes/manifests /var/lib/kubelet
        cp "$file" /etc/kubernetes/bootstrap-kubelet.conf
        echo "kind: KubeletConfiguration" > /var/lib/kubelet/config.yaml
        echo "ca" > /etc/kubernetes/pki/ca.crt
        [ -f /etc/systemd/system/kubelet.service ] || cat > /etc/systemd/system/kubelet.service <<END
[Service]
ExecStart=/usr/bin/env kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf --hostname-override=$name --provider-id=byoh://$name
END
        systemctl start kubelet
        for _ in $(seq 300); do [ -f /etc/kubernetes/kubelet.conf ] && exit 0; sleep 0.1; done
        echo "error execution phase kubelet-start: timed out waiting for the condition" >&2
        exit 1 ;;
    reset)
        systemctl stop kubelet
        rm -f /etc/systemd/system/kubelet.service
        grep ' /var/lib/kubelet/' /proc/self/mounts | cut -d' ' -f2 | while read -r point; do umount "$point"; done
        rm -rf /var/lib/kubelet /etc/kubernetes ;;
    *) exit 2 ;;
esac
"#;

/// Arguments go through the environment: the binary of a test takes them for filters.
const KUBELET: &str = r#"#!/bin/sh
export MILLPOND_TEST_STAND_IN="$(printf '%s\n' kubelet "$@")"
exec /opt/stand-in/kubelet --exact stand_in --nocapture
"#;

/// Puts the stand-ins on the disk of a machine that is off; the program plays kubelet.
pub(super) fn install(machine: &Machine, program: &Path) -> Result<()> {
    let folder = machine.upper().join(FOLDER);
    fs::create_dir_all(folder.join("bin")).context("make a folder of a machine")?;
    for (name, script) in [("systemctl", SYSTEMCTL), ("kubeadm", KUBEADM), ("kubelet", KUBELET)] {
        let path = folder.join("bin").join(name);
        fs::write(&path, script).with_context(|| format!("write `{}`", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).context("make a script executable")?;
    }
    // Its process has the name of the file.
    fs::hard_link(program, folder.join("kubelet")).context("install the stand-in for kubelet")
}
