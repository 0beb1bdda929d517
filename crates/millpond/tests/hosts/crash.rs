//! Agents that are killed, machines that reboot, cables that are cut: no plan of an old epoch, no step done twice at a
//! time, and a host that was released is as it was before.

use anyhow::Result;
use serde_json::json;

use crate::stage::{Stage, kubeadm, tls, until};

#[tokio::test]
async fn agents_killed_again_and_again_finish_their_plans() -> Result<()> {
    let stage = Stage::new().await?;
    let mut host = stage.host("node10", 10).await?;
    for epoch in 1..=3 {
        let secret = format!("m{epoch}");
        stage.bootstrap(&secret, "node10").await?;
        stage.claim("node10", epoch, tls(&secret)).await?;
        kill_while(&stage, &mut host, epoch, "Applied").await?;
        stage.node("node10").await?;
        stage.release("node10").await?;
        kill_while(&stage, &mut host, epoch, "Reset").await?;
        assert_eq!(host.changes()?, [""; 0], "after epoch {epoch}");
    }
    Ok(())
}

/// Kills the agent at every change of its journal until the plan is in that phase.
async fn kill_while(stage: &Stage, host: &mut crate::stage::Host, epoch: i64, phase: &str) -> Result<()> {
    let journal = host.machine.path("var/lib/millpond-agent/journal.json")?;
    let mut last = None;
    let mut kills = 0;
    while kills < 40 {
        host.agent.ensure_running()?;
        let now = std::fs::read(&journal).ok();
        let reported = stage.byo_host("node10").await?["status"]["plan"].clone();
        if reported["epoch"] == epoch && reported["phase"] == phase {
            return Ok(());
        }
        if now != last {
            last = now;
            host.agent.kill()?;
            host.restart()?;
            kills += 1;
        }
    }
    stage.phase_is("node10", epoch, phase).await.map(drop)
}

#[tokio::test]
async fn a_host_that_reboots_while_it_joins_joins_afterwards() -> Result<()> {
    let stage = Stage::new().await?;
    let mut host = stage.host("node10", 10).await?;
    // The command waits on the first boot, and for ever.
    let data = "#cloud-config\nruncmd:\n- 'mkdir -p /opt/boots && date >> /opt/boots/log; [ $(wc -l < /opt/boots/log) -gt 1 ] || sleep 1000'\n";
    stage.secret("slow", json!({"value": data})).await?;
    stage.claim("node10", 1, kubeadm("slow")).await?;
    let log = host.machine.path("opt/boots/log")?;
    until("its command runs", || std::fs::read(&log).is_ok_and(|text| !text.is_empty())).await?;
    host.reboot()?;
    stage.phase_is("node10", 1, "Applied").await?;
    assert_eq!(host.machine.sh("wc -l < /opt/boots/log")?.trim(), "2", "once on each boot");
    Ok(())
}

#[tokio::test]
async fn a_host_that_was_cut_off_resets_before_it_serves_another_machine() -> Result<()> {
    let stage = Stage::new().await?;
    let mut host = stage.host("node10", 10).await?;
    stage.bootstrap("m1", "node10").await?;
    stage.claim("node10", 1, tls("m1")).await?;
    stage.phase_is("node10", 1, "Applied").await?;
    stage.node("node10").await?;
    host.machine.set_connected(false)?;
    // While it hears nothing, its claim goes to another machine, with a greater epoch.
    stage.release("node10").await?;
    stage.bootstrap("m2", "node10").await?;
    stage.claim("node10", 2, tls("m2")).await?;
    host.agent.kill()?;
    host.machine.set_connected(true)?;
    host.restart()?;
    let applied = stage.phase_is("node10", 2, "Applied").await?;
    assert_eq!(applied["status"]["epoch"], 2);
    stage.release("node10").await?;
    stage.phase_is("node10", 2, "Reset").await?;
    assert_eq!(host.changes()?, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn a_reset_needs_no_server() -> Result<()> {
    let mut stage = Stage::new().await?;
    let mut host = stage.host("node10", 10).await?;
    stage.bootstrap("m1", "node10").await?;
    stage.claim("node10", 1, tls("m1")).await?;
    stage.phase_is("node10", 1, "Applied").await?;
    stage.node("node10").await?;
    // The reset begins, and systemd does not answer: the agent is killed there.
    host.machine.sh("mkdir -p /run/faults && touch /run/faults/systemctl-disable")?;
    stage.release("node10").await?;
    let reached = host.machine.path("run/faults/systemctl-disable.reached")?;
    until("the reset begins", || reached.exists()).await?;
    host.agent.kill()?;
    stage.server.kill()?;
    host.machine.sh("rm /run/faults/systemctl-disable")?;
    host.restart()?;
    let journal = host.machine.path("var/lib/millpond-agent/journal.json")?;
    let is_reset = || std::fs::read_to_string(&journal).is_ok_and(|text| !text.contains("\"resetting\":true"));
    until("the reset ends", is_reset).await?;
    host.agent.ensure_running()?;
    assert_eq!(host.changes()?, [""; 0]);
    Ok(())
}
