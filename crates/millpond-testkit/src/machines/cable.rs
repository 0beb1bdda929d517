//! What joins a machine to a bridge: a pair of interfaces, one of them inside.

use std::process::Command;

use anyhow::Result;

use super::{ip, run};

/// A cable, from a bridge to `eth0` of a machine.
#[derive(Debug)]
pub(super) struct Cable {
    pub(super) bridge: String,
    /// Its end on this machine.
    pub(super) link: String,
    /// Address of the machine.
    pub(super) address: String,
}

impl Cable {
    /// Plugs it into the network namespace of a process.
    pub(super) fn connect(&self, process: u32) -> Result<()> {
        let (process, inside) = (process.to_string(), format!("i{}", self.link));
        // The kernel removes the cable of the last boot with its network namespace, some time after the last process.
        let _ = ip(&["link", "del", &self.link]);
        ip(&["link", "add", &self.link, "type", "veth", "peer", "name", &inside])?;
        ip(&["link", "set", &self.link, "master", &self.bridge])?;
        ip(&["link", "set", &inside, "netns", &process])?;
        ip(&["link", "set", &self.link, "up"])?;
        let own = |words: &[&str]| run(Command::new("nsenter").args(["-t", &process, "-n", "ip"]).args(words));
        own(&["link", "set", &inside, "name", "eth0"])?;
        own(&["addr", "add", &format!("{}/24", self.address), "dev", "eth0"])?;
        own(&["link", "set", "eth0", "up"])?;
        let gateway = self.address.rsplit_once('.').map_or(String::new(), |(prefix, _)| format!("{prefix}.1"));
        own(&["route", "add", "default", "via", &gateway])
    }

    /// Cuts it, or mends it.
    pub(super) fn set_connected(&self, connected: bool) -> Result<()> {
        ip(&["link", "set", &self.link, if connected { "up" } else { "down" }])
    }
}
