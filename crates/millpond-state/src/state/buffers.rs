//! The number and properties of the pods that a CapacityBuffer reserves capacity for.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use millpond_api::capacity_buffer::{ACTIVE_STRATEGY, CapacityBuffer, ScalableRef};
use millpond_plan::model::Resources;

use super::{State, Template};
use crate::lower::pod::Shape;
use crate::objects::Kind;

/// Objects that a buffer can be for, all of the group `apps`.
const SCALABLE: [Kind; 3] = [Kind::Deployment, Kind::ReplicaSet, Kind::StatefulSet];

/// Why it cannot be said what a buffer is for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// It has no reference.
    #[error("neither `podTemplateRef` nor `scalableRef` is set")]
    NoReference,
    /// It refers to a PodTemplate that does not exist.
    #[error("there is no PodTemplate `{0}` in its namespace")]
    NoTemplate(String),
    /// It refers to a workload that does not exist.
    #[error("there is no {kind} `{name}` in its namespace")]
    NoWorkload {
        /// Kind of the workload.
        kind: String,
        /// Its name.
        name: String,
    },
    /// It refers to a kind that creates no pods.
    #[error("`{0}` is none of the kinds that a buffer can be for: Deployment, ReplicaSet and StatefulSet of `apps`")]
    Unsupported(String),
}

/// What a buffer is for.
pub(crate) struct Purpose<'s> {
    pub(crate) template: &'s Template,
    /// How many pods the workload wants.
    scale: Option<u32>,
}

impl State {
    /// How many pods a buffer reserves capacity for; `None` if it does not exist, or another provisioner fills it.
    pub fn buffer(&self, namespace: &str, name: &str) -> Option<Result<u32, Unresolved>> {
        let (buffer, _) = self.buffers.get(namespace)?.get(name)?;
        is_active(buffer).then(|| self.purpose(namespace, buffer).map(|purpose| self.size(namespace, buffer, &purpose)))
    }

    /// The pods that a buffer reserves capacity for.
    pub(crate) fn purpose(&self, namespace: &str, buffer: &CapacityBuffer) -> Result<Purpose<'_>, Unresolved> {
        let spec = &buffer.spec;
        if let Some(reference) = &spec.pod_template_ref {
            let found = self.templates.get(namespace).and_then(|templates| templates.get(reference.name.as_str()));
            let template = found.ok_or_else(|| Unresolved::NoTemplate(reference.name.clone()))?;
            return Ok(Purpose { template, scale: None });
        }
        let ScalableRef { api_group, kind, name } = spec.scalable_ref.as_ref().ok_or(Unresolved::NoReference)?;
        let known = SCALABLE.into_iter().find(|known| known.name() == kind);
        let Some(known) = known.filter(|_| matches!(api_group.as_str(), "" | "apps")) else {
            let group = if api_group.is_empty() { String::new() } else { format!("{api_group}/") };
            return Err(Unresolved::Unsupported(format!("{group}{kind}")));
        };
        let found = self.workloads.get(&(known, namespace.into(), name.as_str().into()));
        let missing = || Unresolved::NoWorkload { kind: kind.clone(), name: name.clone() };
        let workload = found.ok_or_else(missing)?;
        Ok(Purpose { template: &workload.template, scale: Some(workload.scale) })
    }

    /// How many pods that makes: the greater of number and share, as far as the limits go; where neither is said, as
    /// many as the limits allow.
    pub(crate) fn size(&self, namespace: &str, buffer: &CapacityBuffer, purpose: &Purpose<'_>) -> u32 {
        let spec = &buffer.spec;
        let count = |count: i32| u32::try_from(count).unwrap_or(0);
        let share = spec.percentage.zip(purpose.scale).map(|(percent, scale)| share(scale, count(percent)));
        let wanted = spec.replicas.map(count).max(share);
        let most = self.within_limits(namespace, buffer, purpose.template);
        match (wanted, most) {
            (Some(wanted), Some(most)) => wanted.min(most),
            (wanted, most) => wanted.or(most).unwrap_or(0),
        }
    }

    fn within_limits(&self, namespace: &str, buffer: &CapacityBuffer, template: &Template) -> Option<u32> {
        let (_, shape) = self.made_from(namespace, template);
        let limits = buffer.spec.limits.iter().flat_map(millpond_api::amounts::Amounts::iter);
        let asked = |name: &str| self.tables.resources.find(name).map_or(0, |id| shape.class.requests.get(id));
        let counted = limits.map(|(name, limit)| (limit, asked(name))).filter(|(_, asked)| *asked > 0);
        counted.map(|(limit, asked)| u32::try_from(limit / asked).unwrap_or(if limit < 0 { 0 } else { u32::MAX })).min()
    }

    /// The pods that a template creates now, with the requests that LimitRanges of the namespace add.
    pub(crate) fn made_from(&self, namespace: &str, template: &Template) -> (u128, Arc<Shape>) {
        let Template { content, shape, parts } = template;
        let requests = parts.requests(&self.default_requests(namespace));
        if requests == shape.class.requests {
            return (*content, Arc::clone(shape));
        }
        let half = |seed: u64| {
            let mut hasher = DefaultHasher::new();
            (seed, content, &requests).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        let content = half(1) << 64 | half(2);
        let mut shape = Shape::clone(shape);
        shape.class.requests = requests;
        (content, Arc::new(shape))
    }

    /// The default requests of containers. If there are several LimitRanges, the first by name counts.
    fn default_requests(&self, namespace: &str) -> Resources {
        let mut all = Resources::new();
        for range in self.limit_ranges.get(namespace).into_iter().flat_map(|ranges| ranges.values().rev()) {
            for (resource, amount) in range.iter() {
                all.set(resource, amount);
            }
        }
        all
    }
}

/// Whether the buffer is to be filled, and by nodes that run.
pub(crate) fn is_active(buffer: &CapacityBuffer) -> bool {
    let strategy = buffer.spec.provisioning_strategy.as_deref();
    buffer.metadata.deletion_timestamp.is_none() && strategy.is_none_or(|strategy| strategy == ACTIVE_STRATEGY)
}

/// A percentage of a number, rounded up.
fn share(of: u32, percent: u32) -> u32 {
    u32::try_from((u64::from(of) * u64::from(percent)).div_ceil(100)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_are_rounded_up() {
        let cases = [(10, 20, 2), (10, 25, 3), (1, 1, 1), (0, 50, 0), (10, 0, 0), (3, 100, 3), (2, 250, 5)];
        for (of, percent, expected) in cases {
            assert_eq!(share(of, percent), expected, "{percent}% of {of}");
        }
        assert_eq!(share(u32::MAX, u32::MAX), u32::MAX);
    }
}
