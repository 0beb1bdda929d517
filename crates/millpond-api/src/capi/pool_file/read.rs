//! Builds a pool file from a document tree.

use std::collections::BTreeMap;

use super::fields::{FIELDS, VSPHERE_FIELDS};
use super::{PciDevice, PoolFile, Reading, VSphere, Volume};
use crate::capi::gpu::{self, Check, DeviceId, Use};
use crate::catalog::import::FileError;
use crate::document::{Key, Position, Tree, Value, yaml};
use crate::karpenter::{Taint, TaintEffect};
use crate::spelling::nearest;
use crate::{duration, labels, quantity};

/// The largest file; they have a few dozen lines.
const LIMIT_BYTES: usize = 1 << 20;
/// The most machines of a pool: a mistake otherwise.
const LIMIT_REPLICAS: i64 = 100_000;
/// The most devices of a machine.
const LIMIT_DEVICES: usize = 64;
/// Where documentation marks what it talks about; copied along, it is no part of the value.
const ARROW: &str = "<--";

pub(super) fn parse(file: &str, text: &str) -> Result<Reading, Vec<FileError>> {
    let mut reader = Reader { file, errors: Vec::new(), warnings: Vec::new() };
    let mut documents: Vec<Tree<'_>> = Vec::new();
    if text.len() > LIMIT_BYTES {
        reader.fail(Position::START, "", "", format!("larger than {} MiB", LIMIT_BYTES >> 20));
        return Err(reader.errors);
    }
    if let Err(broken) = yaml::read(text, &mut |tree, in_list| {
        if !in_list && !tree.is_null() {
            documents.push(tree);
        }
    }) {
        reader.fail(broken.place, "", "", broken.problem);
        return Err(reader.errors);
    }
    match &documents[..] {
        [] => reader.fail(Position::START, "", "", "is empty: give at least `name: NAME`"),
        [tree] => {
            let file = reader.pool(tree);
            if reader.errors.is_empty() {
                return Ok(Reading { file, warnings: reader.warnings });
            }
        }
        [_, second, ..] => reader.fail(second.place, "", "", "is a second document; a file holds one pool"),
    }
    Err(reader.errors)
}

struct Reader<'f> {
    file: &'f str,
    errors: Vec<FileError>,
    warnings: Vec<FileError>,
}

/// A map of the file, and which of its fields is asked for.
struct Fields<'t, 'a> {
    entries: &'t [(Key<'a>, Tree<'a>)],
    path: String,
}

impl<'t, 'a> Fields<'t, 'a> {
    fn get(&self, key: &str) -> Option<&'t Tree<'a>> {
        self.entries.iter().find(|(name, _)| name.text == key).map(|(_, value)| value).filter(|value| !value.is_null())
    }

    fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

impl Reader<'_> {
    fn fail(&mut self, place: Position, field: &str, text: &str, problem: impl Into<String>) {
        let error = self.file_error(place, field, text, problem.into());
        self.errors.push(error);
    }

    fn warn(&mut self, place: Position, field: &str, text: &str, problem: impl Into<String>) {
        let warning = self.file_error(place, field, text, problem.into());
        self.warnings.push(warning);
    }

    fn file_error(&self, place: Position, field: &str, text: &str, problem: String) -> FileError {
        FileError {
            file: self.file.to_owned(),
            line: place.line.into(),
            column: place.column.into(),
            field: (!field.is_empty()).then(|| field.to_owned()),
            text: text.to_owned(),
            problem,
        }
    }

    /// A map with these keys and no others.
    fn fields<'t, 'a>(&mut self, tree: &'t Tree<'a>, path: &str, known: &[&str]) -> Fields<'t, 'a> {
        let path = path.to_owned();
        let Value::Map(entries) = &tree.value else {
            self.fail(tree.place, &path, tree.shown(), "is not a map of fields such as `name: NAME`");
            return Fields { entries: &[], path };
        };
        for (key, _) in entries.iter().filter(|(key, _)| !known.contains(&&*key.text)) {
            let shown: String = key.text.chars().take(80).collect();
            let of = if path.is_empty() { "a node pool file".to_owned() } else { format!("`{path}`") };
            let problem = self.unknown(&path, &key.text, known);
            let field = if path.is_empty() { shown } else { format!("{path}.{shown}") };
            self.fail(key.place, &field, "", format!("is unknown to {of}; {problem}"));
        }
        Fields { entries, path }
    }

    /// The field that the user may mean: one of this level, or the same name on the other level.
    fn unknown(&self, path: &str, key: &str, known: &[&str]) -> String {
        if path.is_empty() && VSPHERE_FIELDS.contains(&key) {
            return format!("it belongs below `vsphere`: write `vsphere.{key}`");
        }
        if path == "vsphere" && FIELDS.contains(&key) {
            return format!("it belongs to the first layer: write `{key}` at the beginning of a line");
        }
        // `replica` is accepted but not documented.
        let known = if path.is_empty() { FIELDS } else { known };
        match nearest(key, known.iter().copied()) {
            Some(like) => format!("is `{like}` meant?"),
            None => format!("there are {}", known.join(", ")),
        }
    }

    // Values

    /// The text of a scalar, whatever its type, and whether it is quoted.
    fn scalar(&mut self, tree: &Tree<'_>, field: &str) -> Option<(String, bool)> {
        let Value::Scalar(scalar) = &tree.value else {
            self.fail(tree.place, field, "", "is a list or a map; give one value");
            return None;
        };
        let text = match scalar.text.split_once(ARROW) {
            Some((text, note)) if scalar.plain => {
                let problem = format!("has a note of documentation at its end (`{ARROW}{note}`), which is left out");
                self.warn(tree.place, field, "", problem);
                text.trim()
            }
            _ => &scalar.text,
        };
        Some((text.to_owned(), !scalar.plain))
    }

    fn text(&mut self, fields: &Fields<'_, '_>, key: &str) -> Option<String> {
        let (tree, field) = (fields.get(key)?, fields.path(key));
        let (text, _) = self.scalar(tree, &field)?;
        if text.is_empty() {
            self.fail(tree.place, &field, "", "is empty: leave it out, or give a value");
            return None;
        }
        Some(text)
    }

    fn word(&mut self, fields: &Fields<'_, '_>, key: &str, words: &[&str]) -> Option<String> {
        let text = self.text(fields, key)?;
        if words.contains(&text.as_str()) {
            return Some(text);
        }
        let like = nearest(&text, words.iter().copied());
        let hint = like.map_or_else(|| format!("give {}", words.join(" or ")), |like| format!("is `{like}` meant?"));
        let place = fields.get(key)?.place;
        self.fail(place, &fields.path(key), &text, format!("is not one of {}; {hint}", words.join(", ")));
        None
    }

    fn number(&mut self, fields: &Fields<'_, '_>, key: &str, least: i64, most: i64) -> Option<i64> {
        let tree = fields.get(key)?;
        self.number_of(tree, &fields.path(key), least, most)
    }

    fn number_of(&mut self, tree: &Tree<'_>, field: &str, least: i64, most: i64) -> Option<i64> {
        let (text, _) = self.scalar(tree, field)?;
        match text.parse::<i64>() {
            Ok(number) if (least..=most).contains(&number) => return Some(number),
            Ok(_) => self.fail(tree.place, field, &text, format!("is out of range: {least} to {most}")),
            Err(_) => self.fail(tree.place, field, &text, "is not a whole number"),
        }
        None
    }

    fn list<'t, 'a>(&mut self, fields: &Fields<'t, 'a>, key: &str) -> Option<&'t [Tree<'a>]> {
        let tree = fields.get(key)?;
        let Value::List(entries) = &tree.value else {
            self.fail(tree.place, &fields.path(key), tree.shown(), "is not a list");
            return None;
        };
        Some(entries)
    }

    // The first layer

    fn pool(&mut self, tree: &Tree<'_>) -> PoolFile {
        let known: Vec<&str> = FIELDS.iter().copied().chain(["replica"]).collect();
        let fields = self.fields(tree, "", &known);
        let file = PoolFile {
            name: self.name(&fields, tree.place),
            replicas: self.replicas(&fields),
            az: self.text(&fields, "az"),
            node_machine_type: self.text(&fields, "nodeMachineType"),
            worker_class: self.text(&fields, "workerClass"),
            labels: self.labels(&fields),
            taints: self.taints(&fields),
            vm_class: self.text(&fields, "vmClass"),
            storage_class: self.text(&fields, "storageClass"),
            tkr_resolver: self.text(&fields, "tkrResolver"),
            volumes: self.volumes(&fields),
            tkr: self.release(&fields),
            node_drain_timeout_s: self.drain_timeout(&fields),
            base_machine_deployment: self.text(&fields, "baseMachineDeployment"),
            vsphere: self.vsphere(&fields),
        };
        if let (Some(devices), Some(version)) = (&file.vsphere.pci_devices, &file.vsphere.hardware_version) {
            let too_low = gpu::parse_hardware_version(version).is_some_and(|it| it < gpu::LEAST_HARDWARE_VERSION);
            if too_low && !devices.is_empty() {
                let place = tree.locate("vsphere.hardwareVersion").0;
                let problem = format!(
                    "is too low for pciDevices: hosts give devices to vmx-{} (vSphere 7.0) and later",
                    gpu::LEAST_HARDWARE_VERSION
                );
                self.fail(place, "vsphere.hardwareVersion", version, problem);
            }
        }
        file
    }

    fn name(&mut self, fields: &Fields<'_, '_>, start: Position) -> String {
        let name = self.text(fields, "name");
        let Some(name) = name else {
            if self.errors.iter().all(|error| error.field.as_deref() != Some("name")) {
                self.fail(start, "name", "", "is missing: give `name: NAME`");
            }
            return String::new();
        };
        let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let right = name.len() <= 63
            && name.bytes().all(|byte| letter(byte) || byte == b'-')
            && name.bytes().next().is_some_and(letter)
            && name.bytes().last().is_some_and(letter);
        if !right {
            let place = fields.get("name").map_or(start, |tree| tree.place);
            let problem = "is not a name: up to 63 small letters, digits and `-`, with a letter or digit at both ends";
            self.fail(place, "name", &name, problem);
        }
        name
    }

    fn replicas(&mut self, fields: &Fields<'_, '_>) -> Option<i64> {
        if let Some((key, tree)) = fields.entries.iter().find(|(key, _)| key.text == "replica") {
            if fields.get("replicas").is_some() {
                self.fail(key.place, "replica", "", "stands beside `replicas`; give one of the two");
                return None;
            }
            self.warn(key.place, "replica", "", "is taken for `replicas`");
            return if tree.is_null() { None } else { self.number_of(tree, "replica", 0, LIMIT_REPLICAS) };
        }
        self.number(fields, "replicas", 0, LIMIT_REPLICAS)
    }

    fn labels(&mut self, fields: &Fields<'_, '_>) -> Option<BTreeMap<String, String>> {
        let tree = fields.get("labels")?;
        let Value::Map(entries) = &tree.value else {
            self.fail(tree.place, "labels", tree.shown(), "is not a map such as `purpose: gpu`");
            return None;
        };
        let mut read = BTreeMap::new();
        for (key, value) in entries {
            let field = format!("labels[{}]", key.text);
            let Some((value_text, _)) = self.scalar(value, &field) else { continue };
            if !labels::is_key(&key.text) {
                self.fail(key.place, "labels", &key.text, "is not the name of a label, such as example.com/team");
            } else if !labels::is_value(&value_text) {
                let problem = "cannot be the value of a label: up to 63 letters, digits, `-`, `_`, `.`";
                self.fail(value.place, &field, &value_text, problem);
            } else {
                read.insert(key.text.to_string(), value_text);
            }
        }
        Some(read)
    }

    fn taints(&mut self, fields: &Fields<'_, '_>) -> Option<Vec<Taint>> {
        let entries = self.list(fields, "taints")?;
        let mut read: Vec<Taint> = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let path = format!("taints[{index}]");
            let fields = self.fields(entry, &path, &["key", "value", "effect", "timeAdded"]);
            let Some(key) = self.text(&fields, "key") else {
                self.fail(entry.place, &path, "", "has no `key`");
                continue;
            };
            if !labels::is_key(&key) {
                self.fail(entry.place, &fields.path("key"), &key, "is not the name of a taint");
            }
            let value = fields.get("value").and_then(|tree| self.scalar(tree, &fields.path("value")));
            let value = value.map(|(text, _)| text).unwrap_or_default();
            if !labels::is_value(&value) {
                self.fail(entry.place, &fields.path("value"), &value, "cannot be the value of a taint");
            }
            if fields.get("effect").is_none() {
                let problem = "is missing: give NoSchedule, PreferNoSchedule or NoExecute";
                self.fail(entry.place, &fields.path("effect"), "", problem);
            }
            let words = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            let effect = match self.word(&fields, "effect", &words).as_deref() {
                Some("NoSchedule") => TaintEffect::NoSchedule,
                Some("PreferNoSchedule") => TaintEffect::PreferNoSchedule,
                Some(_) => TaintEffect::NoExecute,
                None => continue,
            };
            if read.iter().any(|taint| taint.key == key && taint.effect == effect) {
                self.fail(entry.place, &path, &key, "is there twice with the same effect");
                continue;
            }
            read.push(Taint { key, value, effect });
        }
        Some(read)
    }

    fn volumes(&mut self, fields: &Fields<'_, '_>) -> Option<Vec<Volume>> {
        let entries = self.list(fields, "volumes")?;
        let mut read = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let fields =
                self.fields(entry, &format!("volumes[{index}]"), &["name", "mountPath", "capacity", "storageClass"]);
            let (name, mount_path) = (self.text(&fields, "name"), self.text(&fields, "mountPath"));
            let storage = fields.get("capacity").and_then(|tree| {
                let capacity = self.fields(tree, &fields.path("capacity"), &["storage"]);
                let text = self.text(&capacity, "storage")?;
                if let Err(error) = quantity::parse_units(&text) {
                    self.fail(tree.place, &capacity.path("storage"), &text, error.to_string());
                }
                Some(text)
            });
            match (name, mount_path, storage) {
                (Some(name), Some(mount_path), Some(storage)) => read.push(Volume { name, mount_path, storage }),
                _ => self.fail(entry.place, &fields.path, "", "needs `name`, `mountPath` and `capacity.storage`"),
            }
        }
        Some(read)
    }

    fn release(&mut self, fields: &Fields<'_, '_>) -> Option<String> {
        let tree = fields.get("tkr")?;
        let release = self.fields(tree, "tkr", &["reference"]);
        let reference = self.fields(release.get("reference")?, "tkr.reference", &["name"]);
        self.text(&reference, "name")
    }

    fn drain_timeout(&mut self, fields: &Fields<'_, '_>) -> Option<i64> {
        let (tree, text) = (fields.get("nodeDrainTimeout")?, self.text(fields, "nodeDrainTimeout")?);
        match duration::parse_seconds(&text) {
            Ok(seconds) => Some(seconds),
            Err(error) => {
                self.fail(tree.place, "nodeDrainTimeout", &text, error.to_string());
                None
            }
        }
    }

    // The second layer

    fn vsphere(&mut self, fields: &Fields<'_, '_>) -> VSphere {
        let Some(tree) = fields.get("vsphere") else { return VSphere::default() };
        let fields = self.fields(tree, "vsphere", VSPHERE_FIELDS);
        let power_off = self.word(&fields, "powerOffMode", &["hard", "soft", "trySoft"]);
        VSphere {
            clone_mode: self.word(&fields, "cloneMode", &["fullClone", "linkedClone"]),
            datacenter: self.text(&fields, "datacenter"),
            datastore: self.text(&fields, "datastore"),
            storage_policy_name: self.text(&fields, "storagePolicyName"),
            folder: self.text(&fields, "folder"),
            network: self.text(&fields, "network"),
            nameservers: self.nameservers(&fields),
            tkg_ip_family: self.ip_family(&fields),
            resource_pool: self.text(&fields, "resourcePool"),
            vc_ip: self.text(&fields, "vcIP"),
            template: self.text(&fields, "template"),
            memory_mib: self.number(&fields, "memoryMiB", 1, 1 << 30),
            disk_gib: self.number(&fields, "diskGiB", 1, 1 << 20),
            num_cpus: self.number(&fields, "numCPUs", 1, 1024),
            num_cores_per_socket: self.number(&fields, "numCoresPerSocket", 1, 1024),
            additional_disks_gib: self.disks(&fields),
            power_off_mode: power_off,
            hardware_version: self.hardware_version(&fields),
            custom_vmx_keys: self.vmx_keys(&fields),
            pci_devices: self.devices(&fields),
        }
    }

    fn nameservers(&mut self, fields: &Fields<'_, '_>) -> Option<Vec<String>> {
        let tree = fields.get("nameservers")?;
        let field = fields.path("nameservers");
        let texts: Vec<(Position, String)> = match &tree.value {
            Value::List(entries) => {
                let read = |entry: &Tree<'_>| self.scalar(entry, &field).map(|(text, _)| (entry.place, text));
                entries.iter().filter_map(read).collect()
            }
            _ => {
                let (text, _) = self.scalar(tree, &field)?;
                text.split(',').map(|part| (tree.place, part.trim().to_owned())).collect()
            }
        };
        for (place, text) in texts.iter().filter(|(_, text)| text.parse::<std::net::IpAddr>().is_err()) {
            self.fail(*place, &field, text, "is not an address such as 10.0.0.2");
        }
        Some(texts.into_iter().map(|(_, text)| text).collect())
    }

    fn ip_family(&mut self, fields: &Fields<'_, '_>) -> Option<String> {
        self.word(fields, "tkgIPFamily", &["ipv4", "ipv6", "ipv4,ipv6", "ipv6,ipv4"])
    }

    fn disks(&mut self, fields: &Fields<'_, '_>) -> Option<Vec<i64>> {
        let entries = self.list(fields, "additionalDisksGiB")?;
        let path = fields.path("additionalDisksGiB");
        let disk = |(index, entry)| self.number_of(entry, &format!("{path}[{index}]"), 1, 1 << 20);
        Some(entries.iter().enumerate().filter_map(disk).collect())
    }

    fn hardware_version(&mut self, fields: &Fields<'_, '_>) -> Option<String> {
        let text = self.text(fields, "hardwareVersion")?;
        if gpu::parse_hardware_version(&text).is_none() {
            let place = fields.get("hardwareVersion")?.place;
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            let hint = gpu::parse_hardware_version(&format!("vmx-{digits}"));
            let hint = hint.map_or_else(|| "write `vmx-17`".to_owned(), |version| format!("write `vmx-{version}`"));
            self.fail(place, &fields.path("hardwareVersion"), &text, format!("is not a hardware version; {hint}"));
        }
        Some(text)
    }

    /// A map, a list of `k:v`, `k=v` or maps, or `k=v,k=v`.
    fn vmx_keys(&mut self, fields: &Fields<'_, '_>) -> Option<BTreeMap<String, String>> {
        let tree = fields.get("customVMXKeys")?;
        let (field, mut read) = (fields.path("customVMXKeys"), BTreeMap::new());
        self.collect_keys(tree, &field, &mut read);
        Some(read)
    }

    fn collect_keys(&mut self, tree: &Tree<'_>, field: &str, read: &mut BTreeMap<String, String>) {
        match &tree.value {
            Value::Map(entries) => {
                for (key, value) in entries {
                    let Some((text, _)) = self.scalar(value, &format!("{field}[{}]", key.text)) else { continue };
                    self.add_key(key.place, field, &key.text, &text, read);
                }
            }
            Value::List(entries) => entries.iter().for_each(|entry| self.collect_keys(entry, field, read)),
            Value::Scalar(_) => {
                let Some((text, _)) = self.scalar(tree, field) else { return };
                // Lines of a list without dashes of their own arrive as one text.
                for part in text.split([',', ' ', '\n']).filter(|part| !part.is_empty()) {
                    match part.split_once(['=', ':']) {
                        Some((key, value)) => self.add_key(tree.place, field, key, value, read),
                        None => self.fail(tree.place, field, part, "is no setting such as `key=value`"),
                    }
                }
            }
        }
    }

    fn add_key(&mut self, place: Position, field: &str, key: &str, value: &str, read: &mut BTreeMap<String, String>) {
        if key.is_empty() {
            return self.fail(place, field, value, "has no key before it");
        }
        if read.insert(key.to_owned(), value.to_owned()).is_some_and(|before| before != value) {
            self.fail(place, field, key, "is there twice, with different values");
        }
        if key == gpu::MMIO_SIZE_GB && value.parse::<u32>().is_err() {
            self.fail(place, &format!("{field}[{key}]"), value, "is not a number of GiB such as 64");
        }
    }

    fn devices(&mut self, fields: &Fields<'_, '_>) -> Option<Vec<PciDevice>> {
        let entries = self.list(fields, "pciDevices")?;
        let path = fields.path("pciDevices");
        if entries.len() > LIMIT_DEVICES {
            let place = entries[LIMIT_DEVICES].place;
            self.fail(place, &path, "", format!("has more than {LIMIT_DEVICES} devices"));
            return None;
        }
        let device = |(index, entry)| self.device(entry, &format!("{path}[{index}]"));
        Some(entries.iter().enumerate().filter_map(device).collect())
    }

    fn device(&mut self, entry: &Tree<'_>, path: &str) -> Option<PciDevice> {
        let fields = self.fields(entry, path, &["vendorId", "deviceId", "customLabel", "vGPUProfile"]);
        let has_ids = fields.get("vendorId").is_some() || fields.get("deviceId").is_some();
        if let Some(profile) = self.text(&fields, "vGPUProfile") {
            if has_ids {
                self.fail(entry.place, path, "", "has a vGPUProfile and ids; give one of the two");
                return None;
            }
            self.look_at_profile(entry.place, &fields.path("vGPUProfile"), &profile);
            return Some(PciDevice::VGpu(profile));
        }
        let (vendor, device) = (self.id(&fields, "vendorId"), self.id(&fields, "deviceId"));
        let custom_label = self.text(&fields, "customLabel");
        for key in ["vendorId", "deviceId"] {
            if fields.get(key).is_none() {
                self.fail(
                    entry.place,
                    &fields.path(key),
                    "",
                    "is missing: give vendorId and deviceId, or a vGPUProfile",
                );
            }
        }
        let id = self.look_at_device(entry.place, path, DeviceId { vendor: vendor?, device: device? });
        Some(PciDevice::Passthrough { id, custom_label })
    }

    fn id(&mut self, fields: &Fields<'_, '_>, key: &str) -> Option<u16> {
        let (tree, field) = (fields.get(key)?, fields.path(key));
        let (text, quoted) = self.scalar(tree, &field)?;
        match gpu::parse_id(&text, quoted) {
            Ok(id) => Some(id),
            Err(error) => {
                self.fail(tree.place, &field, &text, error.to_string());
                None
            }
        }
    }

    /// Puts exchanged ids right, and says what else is odd.
    fn look_at_device(&mut self, place: Position, path: &str, id: DeviceId) -> DeviceId {
        match gpu::check_device(id) {
            Check::Known(_) => id,
            Check::Swapped(meant, known) => {
                let what = known.map_or_else(|| "a GPU vendor's".to_owned(), |gpu| format!("a {}", gpu.full_name()));
                let problem = format!(
                    "vendorId and deviceId are exchanged; taken as {what}: {{vendorId: {:#06X}, deviceId: {:#06X}}}",
                    meant.vendor, meant.device
                );
                self.warn(place, path, "", problem.replace("0X", "0x"));
                meant
            }
            Check::UnknownDevice(vendor) => {
                let problem = format!(
                    "is a device of {} that is not in the table of GPUs; its memory is not known",
                    vendor.name()
                );
                self.warn(place, path, &id.to_string(), problem);
                id
            }
            Check::Other(name) => {
                self.warn(place, path, &id.to_string(), format!("is no GPU but an {name}"));
                id
            }
            Check::NotGpu => {
                self.warn(place, path, &id.to_string(), "is of no vendor of GPUs; it counts as no GPU");
                id
            }
        }
    }

    fn look_at_profile(&mut self, place: Position, field: &str, profile: &str) {
        match gpu::parse_profile(profile) {
            Some(read) if read.purpose == Use::Desktop => {
                self.warn(place, field, profile, "is for desktops: computing needs a profile that ends in `c` or `q`");
            }
            Some(_) => {}
            None => self.warn(place, field, profile, "does not look like a vGPU profile such as `grid_t4-16c`"),
        }
    }
}
