//! Pods where kube-scheduler would not put them.

use super::{expect, planned, shop};
use crate::model::{InclusionPolicy, Namespaces, PodState};
use crate::testing::{Cluster, PodSpec};

/// A running node in each zone.
fn two_nodes() -> Cluster {
    shop()
        .node("a1", "small", |node| node.pool("general").zone("a"))
        .node("b1", "small", |node| node.pool("general").zone("b"))
}

fn on_nodes(case: &str, cluster: Cluster, place: &[&str], kinds: &[&str]) {
    expect(case, &planned(cluster, &[], place), kinds);
}

#[test]
fn resources_are_not_exceeded() {
    let pods = |cluster: Cluster| cluster.pods(2, "web", "cpu=1", |pod| pod);
    let place = ["web-0 a1", "web-1 a1"];
    on_nodes("just enough", pods(two_nodes()), &place, &[]);
    let with = |state| two_nodes().pod("old", "cpu=100m", |pod| pod.on("a1").state(state));
    on_nodes("with one that runs", pods(with(PodState::Bound)), &place, &["Resources"]);
    on_nodes("with one that goes", pods(with(PodState::Terminating)), &place, &["Resources"]);
    let nominated = two_nodes().pod("first", "cpu=100m", |pod| pod.nominated("a1"));
    on_nodes("with one that waits for the room", pods(nominated), &place, &["Resources"]);
    on_nodes("what no node has", two_nodes().pod("odd", "gpu=1", |pod| pod), &["odd a1"], &["Resources"]);
    let overfull = two_nodes().pod("old", "memory=5Gi", |pod| pod.on("a1")).pod("new", "cpu=1", |pod| pod);
    on_nodes("what it does not ask for may lack", overfull, &["new a1"], &[]);
}

#[test]
fn daemons_need_room_on_new_nodes() {
    let plan = |requests: &str, describe: fn(PodSpec<'_>) -> PodSpec<'_>| {
        let cluster = shop().daemon("log", "cpu=100m", describe).pod("web", requests, |pod| pod);
        planned(cluster, &["general small a"], &["web #0"])
    };
    expect("room for both", &plan("cpu=1900m", |pod| pod), &[]);
    expect("room for one", &plan("cpu=1950m", |pod| pod), &["Resources"]);
    expect("no daemon there", &plan("cpu=1950m", |pod| pod.needs("zone in b")), &[]);
}

#[test]
fn nodes_are_what_pods_ask_for() {
    let plan = |describe: fn(PodSpec<'_>) -> PodSpec<'_>| {
        planned(two_nodes().pod("web", "", describe), &["general small b"], &["web #0"])
    };
    let against: [(&str, fn(PodSpec<'_>) -> PodSpec<'_>, &str); 7] = [
        ("another zone", |pod| pod.needs("zone in a"), "NodeAffinity"),
        ("a label that it lacks", |pod| pod.needs("gpu exists"), "NodeAffinity"),
        ("none of the alternatives", |pod| pod.either(&["zone in a", "arch in arm64"]), "NodeAffinity"),
        ("no alternative at all", |pod| pod.either(&[]), "NodeAffinity"),
        ("a node by name", |pod| pod.needs("node in b1"), "NodeAffinity"),
        ("a hostname", |pod| pod.needs("host in b1"), "NodeAffinity"),
        ("a volume elsewhere", |pod| pod.volume(&["zone in b"]).volume(&["zone in a"]), "Volumes"),
    ];
    for (case, describe, kind) in against {
        expect(case, &plan(describe), &[kind]);
    }
    let good: [(&str, fn(PodSpec<'_>) -> PodSpec<'_>); 5] = [
        ("its zone", |pod| pod.needs("zone in b; pool in general")),
        ("one of the alternatives", |pod| pod.either(&["zone in a", "zone in b"])),
        ("another name", |pod| pod.needs("host notin b1; node notin a1")),
        ("a volume there", |pod| pod.volume(&["zone in a", "zone in b"])),
        ("its own name", |pod| pod.needs("host in general-00001")),
    ];
    for (case, describe) in good {
        expect(case, &plan(describe), &[]);
    }
}

#[test]
fn taints_are_tolerated() {
    let plan = |taint: &str, describe: fn(PodSpec<'_>) -> PodSpec<'_>| {
        let cluster =
            shop().pool("red", |pool| pool.taint(taint).startup_taint("starting:NoSchedule")).pod("web", "", describe);
        planned(cluster, &["red small a"], &["web #0"])
    };
    expect("not tolerated", &plan("team=red:NoSchedule", |pod| pod), &["Taint"]);
    expect("another value", &plan("team=red:NoExecute", |pod| pod.tolerates("team=blue")), &["Taint"]);
    expect("tolerated", &plan("team=red:NoExecute", |pod| pod.tolerates("team=red")), &[]);
    expect("only discouraged", &plan("team=red:PreferNoSchedule", |pod| pod), &[]);
    let node = two_nodes().node("odd", "small", |node| node.taint("odd:NoSchedule")).pod("web", "", |pod| pod);
    on_nodes("a node's own", node, &["web odd"], &["Taint"]);
}

#[test]
fn ports_are_taken_once() {
    let proxies = |cluster: Cluster| cluster.pods(2, "proxy", "", |pod| pod.port(80));
    on_nodes("apart", proxies(two_nodes()), &["proxy-0 a1", "proxy-1 b1"], &[]);
    on_nodes("together", proxies(two_nodes()), &["proxy-0 a1", "proxy-1 a1"], &["HostPort"]);
    let taken = two_nodes().pod("old", "", |pod| pod.port(80).on("a1").state(PodState::Terminating));
    on_nodes("taken", taken.pod("new", "", |pod| pod.port(80)), &["new a1"], &["HostPort"]);
    let other = two_nodes().pod("old", "", |pod| pod.port(81).on("a1")).pod("new", "", |pod| pod.port(80));
    on_nodes("another port", other, &["new a1"], &[]);
    let both = two_nodes().pods(2, "old", "", |pod| pod.port(80).on("a1")).pod("new", "", |pod| pod);
    on_nodes("not the plan's fault", both, &["new a1"], &[]);
    let daemon = shop().daemon("log", "", |pod| pod.port(80)).pod("new", "", |pod| pod.port(80));
    expect("a daemon's", &planned(daemon, &["general small a"], &["new #0"]), &["HostPort"]);
}

#[test]
fn anti_affinity_holds_both_ways() {
    let rule = "PodAntiAffinity";
    let lonely = |cluster: Cluster| cluster.pods(2, "db", "", |pod| pod.one_per_host());
    on_nodes("one on each", lonely(two_nodes()), &["db-0 a1", "db-1 b1"], &[]);
    on_nodes("two on one", lonely(two_nodes()), &["db-0 a1", "db-1 a1"], &[rule]);
    let owner_runs = || two_nodes().pod("old", "", |pod| pod.apart("zone", "app in web").on("a1"));
    on_nodes("the other way round", owner_runs().pod("web", "", |pod| pod), &["web a1"], &[rule]);
    on_nodes("another zone", owner_runs().pod("web", "", |pod| pod), &["web b1"], &[]);
    on_nodes("another app", owner_runs().pod("job", "", |pod| pod), &["job a1"], &[]);
    on_nodes("another namespace", owner_runs().pod("shop/web", "", |pod| pod), &["shop/web a1"], &[]);
    let everywhere = two_nodes().pod("old", "", |pod| {
        pod.apart("zone", "app in web").edit(|class| class.anti_affinity[0].namespaces = Namespaces::All).on("a1")
    });
    on_nodes("all namespaces", everywhere.pod("shop/web", "", |pod| pod), &["shop/web a1"], &[rule]);
    let target_runs = two_nodes().pod("web", "", |pod| pod.on("a1").state(PodState::Terminating));
    on_nodes("one that goes", target_runs.pod("new", "", |pod| pod.apart("zone", "app in web")), &["new a1"], &[rule]);
    let no_label = two_nodes().pod("web", "", |pod| pod.on("a1")).pod("new", "", |pod| pod.apart("rack", "app in web"));
    on_nodes("no such label", no_label, &["new a1"], &[]);
    let none =
        two_nodes().pods(2, "db", "", |pod| pod.one_per_host().edit(|class| class.anti_affinity[0].selector = None));
    on_nodes("no pod is selected", none, &["db-0 a1", "db-1 a1"], &[]);
    let enemies_run = two_nodes().pods(2, "db", "", |pod| pod.one_per_host().on("a1")).pod("web", "", |pod| pod);
    on_nodes("not the plan's fault", enemies_run, &["web a1"], &[]);
    let planned_both = shop().pods(2, "db", "", |pod| pod.apart("zone", "app in db"));
    let plan = |zones: [&str; 2]| planned(planned_both.clone(), &zones, &["db-0 #0", "db-1 #1"]);
    expect("two zones", &plan(["general small a", "general small b"]), &[]);
    expect("one zone", &plan(["general small a", "general small a"]), &[rule]);
}

#[test]
fn affinity_finds_its_pods() {
    let rule = "PodAffinity";
    let friend = |cluster: Cluster| cluster.pod("new", "", |pod| pod.near("zone", "app in web"));
    let web_runs = || two_nodes().pod("web", "", |pod| pod.on("a1"));
    on_nodes("near", friend(web_runs()), &["new a1"], &[]);
    on_nodes("far", friend(web_runs()), &["new b1"], &[rule]);
    on_nodes("no pod there", friend(two_nodes()), &["new a1"], &[rule]);
    on_nodes("planned near", friend(two_nodes().pod("web", "", |pod| pod)), &["web a1", "new a1"], &[]);
    on_nodes("planned far", friend(two_nodes().pod("web", "", |pod| pod)), &["web b1", "new a1"], &[rule]);
    let no_label = web_runs().pod("new", "", |pod| pod.near("rack", "app in web"));
    on_nodes("no such label", no_label, &["new a1"], &[rule]);
    let both = web_runs().pod("new", "", |pod| pod.near("zone", "app in web").near("host", "app in web"));
    on_nodes("both terms", both.clone(), &["new a1"], &[]);
    let other_host = both.node("a2", "small", |node| node.zone("a"));
    on_nodes("one of two terms", other_host, &["new a2"], &[rule]);
}

#[test]
fn only_the_first_of_its_kind_starts_a_domain() {
    let rule = "PodAffinity";
    let ring = |cluster: Cluster| cluster.pods(4, "ring", "", |pod| pod.near("zone", "app in ring"));
    on_nodes("one zone", ring(two_nodes()), &["ring-0 a1", "ring-1 a1"], &[]);
    on_nodes("two zones", ring(two_nodes()), &["ring-0 a1", "ring-1 a1", "ring-2 b1", "ring-3 b1"], &[rule]);
    let started = two_nodes().pod("ring", "", |pod| pod.on("b1"));
    on_nodes("started elsewhere", ring(started), &["ring-0 a1"], &[rule]);
    let circle = two_nodes()
        .pod("egg", "", |pod| pod.near("zone", "app in hen"))
        .pod("hen", "", |pod| pod.near("zone", "app in egg"));
    on_nodes("hen and egg", circle, &["egg a1", "hen a1"], &[rule]);
    let any = |priority| {
        two_nodes()
            .pod("web", "", |pod| pod)
            .pod("any", "", move |pod| pod.near("zone", "app exists").priority(priority))
    };
    on_nodes("others come first", any(0), &["web b1", "any a1"], &[rule]);
    on_nodes("others come later", any(1), &["web b1", "any a1"], &[]);
}

#[test]
fn spread_is_even_in_the_end() {
    let rule = "Spread";
    let web = |cluster: Cluster| cluster.pods(4, "web", "", |pod| pod.spread("zone", 1));
    on_nodes("two and two", web(two_nodes()), &["web-0 a1", "web-1 a1", "web-2 b1", "web-3 b1"], &[]);
    on_nodes("two and one", web(two_nodes()), &["web-0 a1", "web-1 a1", "web-2 b1"], &[]);
    on_nodes("two and none", web(two_nodes()), &["web-0 a1", "web-1 a1"], &[rule]);
    let soft = two_nodes().pods(2, "web", "", |pod| pod.spread_with("zone", 1, |spread| spread.hard = false));
    on_nodes("a wish", soft, &["web-0 a1", "web-1 a1"], &[]);
    let going = two_nodes().pods(3, "old", "", |pod| pod.label("app=web").on("a1").state(PodState::Terminating));
    on_nodes("those that go do not count", web(going), &["web-0 a1"], &[]);
    let running = two_nodes().pods(2, "old", "", |pod| pod.label("app=web").on("a1"));
    on_nodes("those that run do", web(running), &["web-0 a1"], &[rule]);
    let elsewhere = two_nodes().pods(2, "shop/old", "", |pod| pod.label("app=web").on("a1"));
    on_nodes("another namespace does not count", web(elsewhere), &["web-0 a1"], &[]);
    let by_rack = two_nodes().pod("web", "", |pod| pod.spread("rack", 1));
    on_nodes("no such label", by_rack, &["web a1"], &["NoDomain"]);
    let by_host = two_nodes().pods(2, "web", "", |pod| pod.spread("host", 1));
    on_nodes("hosts", by_host.clone(), &["web-0 a1", "web-1 b1"], &[]);
    on_nodes("one host", by_host, &["web-0 a1", "web-1 a1"], &[rule]);
}

#[test]
fn spread_counts_the_domains_that_it_should() {
    let rule = "Spread";
    let spread = |describe: fn(&mut crate::model::Spread)| {
        two_nodes()
            .node("c1", "small", |node| node.zone("c").taint("odd:NoSchedule"))
            .pods(4, "web", "", move |pod| pod.needs("zone in a,c").spread_with("zone", 1, describe))
    };
    let place = ["web-0 a1", "web-1 a1"];
    on_nodes("b does not count, c does", spread(|_| {}), &place, &[rule]);
    on_nodes("taints are honoured", spread(|spread| spread.node_taints = InclusionPolicy::Honor), &place, &[]);
    let ignoring = |spread: &mut crate::model::Spread| {
        (spread.node_affinity, spread.node_taints) = (InclusionPolicy::Ignore, InclusionPolicy::Honor);
    };
    on_nodes("affinity is ignored: b counts", spread(ignoring), &place, &[rule]);
    let few = |spread: &mut crate::model::Spread| {
        (spread.node_taints, spread.min_domains) = (InclusionPolicy::Honor, Some(2));
    };
    on_nodes("too few domains", spread(few), &place, &[rule]);
    on_nodes("too few domains, one pod", spread(few), &place[..1], &[]);
    let none = |spread: &mut crate::model::Spread| spread.selector = None;
    on_nodes("no pod is counted", spread(none), &place, &[]);

    let gone =
        two_nodes()
            .node("c1", "small", |node| node.pool("general").zone("c").leaving())
            .pods(2, "web", "", |pod| pod.spread("zone", 1));
    on_nodes("a zone that goes does not count", gone, &["web-0 a1", "web-1 b1"], &[]);
    let new = shop().pods(3, "web", "cpu=1", |pod| pod.spread("zone", 1));
    let one_zone = planned(new.clone(), &["general large a"], &["web-0 #0", "web-1 #0", "web-2 #0"]);
    expect("a zone without nodes does not count", &one_zone, &[]);
    let two_zones = planned(new, &["general large a", "general large b"], &["web-0 #0", "web-1 #0", "web-2 #1"]);
    expect("new zones count", &two_zones, &[]);
}
