//! Thirteen small workloads on EC2, from web services to training on GPUs.
//!
//! A mix is a list of services, each with its own pod size and number of replicas. Pools may buy on-demand in three
//! zones, and spot if the mix includes it.

use millpond_api::labels::{ARCH, CAPACITY_TYPE, HOSTNAME, ZONE, aws};

use super::scale::size;
use super::{Families, Workload, ZONES, ec2_pool};
use crate::builder::{Builder, Template};
use crate::random::Random;

/// The seed where none is given.
pub const SEED: u64 = 1;

/// A mix by name.
#[derive(Debug, Clone, Copy)]
pub struct Mix {
    /// Its name.
    pub name: &'static str,
    /// A description.
    pub about: &'static str,
    capacity_types: &'static [&'static str],
    fill: fn(&mut Mixer),
}

const ON_DEMAND: &[&str] = &["on-demand"];
const SPOT: &[&str] = &["spot"];
const BOTH: &[&str] = &["spot", "on-demand"];

/// All mixes.
pub const ALL: [Mix; 13] = [
    mix("web-small", "40 small web services", ON_DEMAND, web_small),
    mix("mem-heavy", "20 caches and databases, 8 to 16 GiB a core", ON_DEMAND, mem_heavy),
    mix("cpu-heavy", "20 services that compute, at most 2 GiB a core", ON_DEMAND, cpu_heavy),
    mix("batch-spot", "15 batch jobs on spot", SPOT, batch_spot),
    mix("gpu-mix", "training and inference on GPUs beside 16 usual services", ON_DEMAND, gpu_mix),
    mix("giant-pod", "one pod of 90 cores and 600 GiB among small ones", ON_DEMAND, giant_pod),
    mix(
        "tiny-podlimit",
        "10,000 pods that ask for next to nothing: nodes run out of pods first",
        ON_DEMAND,
        tiny_podlimit,
    ),
    mix("arch-split", "amd64 only, arm64 only, and either", ON_DEMAND, arch_split),
    mix("spot-od", "half of the services refuse spot", BOTH, spot_od),
    mix("zone-pinned-spread", "services in one zone, spread over zones, and anywhere", ON_DEMAND, zone_pinned_spread),
    mix("anti-affinity", "120 services of which a third has at most one pod on a host", ON_DEMAND, anti_affinity),
    mix("tiny-case", "seven pods", ON_DEMAND, tiny_case),
    mix("everything", "300 services with every rule above", BOTH, everything),
];

const fn mix(
    name: &'static str,
    about: &'static str,
    capacity_types: &'static [&'static str],
    fill: fn(&mut Mixer),
) -> Mix {
    Mix { name, about, capacity_types, fill }
}

impl Mix {
    /// The mix of that name.
    pub fn find(name: &str) -> Option<Self> {
        ALL.into_iter().find(|mix| mix.name == name)
    }

    /// The workload.
    pub fn workload(&self, families: Families, seed: u64) -> Workload {
        let name = format!("{}-{}", self.name, families.name());
        let mut builder = Builder::new(format!("bench mixes {} families={} seed={seed}", self.name, families.name()));
        ec2_pool(&mut builder, |machine| families.has(machine), self.capacity_types);
        let mut mixer = Mixer { builder, random: Random::new(seed), services: 0 };
        (self.fill)(&mut mixer);
        Workload::pending(name, mixer.builder)
    }
}

/// The distribution of service sizes.
#[derive(Clone, Copy)]
struct Sizes {
    cores: (f64, f64),
    gib_per_core: (f64, f64),
    replicas: (u64, u64),
}

const SMALL: Sizes = Sizes { cores: (0.05, 0.5), gib_per_core: (1.0, 8.0), replicas: (10, 150) };
const MEDIUM: Sizes = Sizes { cores: (0.1, 3.0), gib_per_core: (1.0, 8.0), replicas: (5, 80) };
const MEMORY: Sizes = Sizes { cores: (0.25, 4.0), gib_per_core: (8.0, 16.0), replicas: (10, 120) };
const COMPUTE: Sizes = Sizes { cores: (0.5, 8.0), gib_per_core: (0.5, 2.0), replicas: (10, 120) };
const BATCH: Sizes = Sizes { cores: (1.0, 8.0), gib_per_core: (1.0, 6.0), replicas: (10, 100) };

/// A mix in the making.
struct Mixer {
    builder: Builder,
    random: Random,
    services: usize,
}

/// The label that tells services apart.
const APP: &str = "app";

impl Mixer {
    /// A number of services; `rules` adds what each asks of its nodes.
    fn services(
        &mut self,
        count: usize,
        sizes: Sizes,
        rules: impl for<'b> Fn(Template<'b>, Service<'_>) -> Template<'b>,
    ) {
        for number in 0..count {
            let app = format!("app-{}", self.services);
            self.services += 1;
            let (cpu_milli, memory_mib) = size(&mut self.random, sizes.cores, sizes.gib_per_core);
            let replicas = self.random.between(sizes.replicas.0, sizes.replicas.1);
            let template = self.builder.pod(cpu_milli, memory_mib).label(APP, &app);
            rules(template, Service { number, app: &app }).pending(&app, replicas);
        }
    }

    /// One service of a given size.
    fn service(&mut self, cpu_milli: i64, memory_mib: i64, replicas: u64) {
        let app = format!("app-{}", self.services);
        self.services += 1;
        self.builder.pod(cpu_milli, memory_mib).label(APP, &app).pending(&app, replicas);
    }

    /// Pods with GPUs of one of these models, with cores and GiB for each GPU.
    fn gpus(&mut self, models: &[&str], gpus: i64, cores: i64, gib: i64, replicas: u64) {
        let app = format!("gpu-{}", self.services);
        self.services += 1;
        let template = self.builder.pod(gpus * cores * 1_000, gpus * gib * 1_024).label(APP, &app);
        template.extended("nvidia.com/gpu", gpus).only_on(aws::GPU_NAME, models).pending(&app, replicas);
    }
}

/// A service among others of its kind.
#[derive(Clone, Copy)]
struct Service<'n> {
    number: usize,
    app: &'n str,
}

fn anywhere<'b>(template: Template<'b>, _: Service<'_>) -> Template<'b> {
    template
}

fn one_per_host<'b>(template: Template<'b>, service: Service<'_>) -> Template<'b> {
    template.away_from(HOSTNAME, APP, service.app)
}

fn over_zones<'b>(template: Template<'b>, service: Service<'_>) -> Template<'b> {
    template.spread(ZONE, APP, service.app)
}

fn in_one_zone<'b>(template: Template<'b>, service: Service<'_>) -> Template<'b> {
    template.only_on(ZONE, &[ZONES[service.number % ZONES.len()]])
}

fn on_demand<'b>(template: Template<'b>, _: Service<'_>) -> Template<'b> {
    template.only_on(CAPACITY_TYPE, ON_DEMAND)
}

fn amd64<'b>(template: Template<'b>, _: Service<'_>) -> Template<'b> {
    template.only_on(ARCH, &["amd64"])
}

fn arm64<'b>(template: Template<'b>, _: Service<'_>) -> Template<'b> {
    template.only_on(ARCH, &["arm64"])
}

fn web_small(mixer: &mut Mixer) {
    mixer.services(40, SMALL, anywhere);
}

fn mem_heavy(mixer: &mut Mixer) {
    mixer.services(20, MEMORY, anywhere);
}

fn cpu_heavy(mixer: &mut Mixer) {
    mixer.services(20, COMPUTE, anywhere);
}

fn batch_spot(mixer: &mut Mixer) {
    mixer.services(15, BATCH, anywhere);
}

fn gpu_mix(mixer: &mut Mixer) {
    gpu_services(mixer);
    mixer.services(16, MEDIUM, anywhere);
}

/// Training on whole machines, fine-tuning on parts of them, inference on single GPUs.
fn gpu_services(mixer: &mut Mixer) {
    mixer.gpus(&["h100"], 8, 20, 200, 6);
    mixer.gpus(&["a100"], 8, 10, 120, 10);
    mixer.gpus(&["a100"], 2, 8, 100, 14);
    mixer.gpus(&["a10g", "l4"], 4, 8, 32, 20);
    mixer.gpus(&["a10g", "l4", "t4"], 1, 6, 24, 60);
    mixer.gpus(&["t4"], 1, 3, 12, 80);
    mixer.gpus(&["l4"], 1, 3, 12, 50);
    mixer.gpus(&["l40s"], 1, 6, 48, 24);
}

fn giant_pod(mixer: &mut Mixer) {
    mixer.service(90_000, 600 * 1_024, 1);
    mixer.services(20, Sizes { replicas: (5, 40), ..MEDIUM }, anywhere);
}

fn tiny_podlimit(mixer: &mut Mixer) {
    mixer.service(5, 8, 5_000);
    mixer.service(10, 16, 3_000);
    mixer.service(20, 8, 2_000);
}

fn arch_split(mixer: &mut Mixer) {
    mixer.services(15, MEDIUM, amd64);
    mixer.services(15, MEDIUM, arm64);
    mixer.services(15, MEDIUM, anywhere);
}

fn spot_od(mixer: &mut Mixer) {
    mixer.services(20, MEDIUM, on_demand);
    mixer.services(20, MEDIUM, anywhere);
}

fn zone_pinned_spread(mixer: &mut Mixer) {
    mixer.services(18, MEDIUM, in_one_zone);
    mixer.services(18, MEDIUM, over_zones);
    mixer.services(18, MEDIUM, anywhere);
}

fn anti_affinity(mixer: &mut Mixer) {
    mixer.services(40, Sizes { replicas: (3, 60), ..SMALL }, one_per_host);
    mixer.services(80, Sizes { replicas: (3, 60), ..MEDIUM }, anywhere);
}

fn tiny_case(mixer: &mut Mixer) {
    mixer.service(1_700, 3_000, 3);
    mixer.service(700, 5_000, 2);
    mixer.service(2_500, 1_500, 2);
}

fn everything(mixer: &mut Mixer) {
    let few = |sizes: Sizes| Sizes { replicas: (3, 60), ..sizes };
    mixer.services(60, few(SMALL), anywhere);
    mixer.services(40, few(MEDIUM), anywhere);
    mixer.services(20, few(MEMORY), anywhere);
    mixer.services(20, few(COMPUTE), on_demand);
    mixer.services(30, few(MEDIUM), amd64);
    mixer.services(30, few(MEDIUM), arm64);
    mixer.services(30, few(SMALL), one_per_host);
    mixer.services(30, few(MEDIUM), over_zones);
    mixer.services(30, few(MEDIUM), in_one_zone);
    gpu_services(mixer);
    mixer.service(60_000, 400 * 1_024, 1);
    mixer.service(5, 8, 1_000);
}
