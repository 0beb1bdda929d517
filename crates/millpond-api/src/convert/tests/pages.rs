//! The complete output of conversions.

use super::super::Target;
use super::{CONSTRAINT, converted, page};

#[test]
fn a_constraint_as_node_pools() {
    insta::assert_snapshot!(page(&converted(CONSTRAINT, Target::Millpond)));
}

#[test]
fn a_constraint_for_karpenter_with_kwok() {
    insta::assert_snapshot!(page(&converted(CONSTRAINT, Target::Kwok)));
}

#[test]
fn a_constraint_for_cluster_autoscaler() {
    insta::assert_snapshot!(page(&converted(CONSTRAINT, Target::ClusterAutoscaler)));
}

#[test]
fn a_constraint_as_itself() {
    let made = converted(CONSTRAINT, Target::ScalingAdvisor);
    insta::assert_snapshot!(format!("{}\n\n{}", page(&made), made.files[0].text));
}
