use millpond_plan::testing::Recipe;
use millpond_plan::check::check;
#[test]
fn debug_one() {
    let seed = 10_056_u64;
    let snapshot = Recipe::everything(30 + seed as usize % 60).snapshot(seed);
    let outcome = super::quick_plan(&snapshot);
    for v in check(&snapshot, &outcome) { println!("{v}"); }
    for (i, n) in snapshot.nodes.iter().enumerate() { println!("{i} {} {:?} sched {} zone {:?} {:?}", n.name, n.state, n.schedulable, n.zone, n.taints); }
    for n in &outcome.plan.new_nodes { println!("new {:?} {:?} {:?}", n.pool, n.instance_type, n.labels.get(snapshot.names.zone)); }
    for (p, t) in &outcome.plan.placements { if snapshot.pod_name(*p).contains("group-4-") { println!("{} {:?}", snapshot.pod_name(*p), t); } }
    for (i,p) in snapshot.pods.iter().enumerate() { if p.name.starts_with("group-4-") { println!("{} {:?} {:?} {:?} {}", p.name, p.class, p.node, p.state, i); } }
    let class = snapshot.pods.iter().find(|p| &*p.name == "group-4-0").unwrap().class;
    println!("{:#?}", snapshot.classes[class.index()].spread);
    println!("{:?} {:?} {:?}", snapshot.classes[class.index()].node_terms, snapshot.classes[class.index()].tolerations, snapshot.classes[class.index()].labels);
    panic!();
}
