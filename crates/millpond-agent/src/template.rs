//! Variables in bootstrap data: those of cloud-init that bootstrap providers use, and the original provider's name of
//! the default network interface.

/// The values of variables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Instance {
    /// Name of the host.
    pub name: String,
    /// Network interface of the default route.
    pub default_interface: String,
}

/// Replaces `{{ ds.meta_data.local_hostname }}` and its like; the error is a variable that is not known.
pub(crate) fn jinja(text: &str, instance: &Instance) -> Result<String, String> {
    replace(text, |variable| match variable.trim() {
        "ds.meta_data.local_hostname"
        | "ds.meta_data.hostname"
        | "ds.meta_data.local-hostname"
        | "ds.meta_data.instance_id"
        | "ds.meta_data.instance-id"
        | "v1.local_hostname"
        | "v1.instance_id"
        | "local_hostname"
        | "instance_id" => Some(instance.name.clone()),
        // A Go template of the original provider, which is filled in later.
        ".DefaultNetworkInterfaceName" => Some("{{ .DefaultNetworkInterfaceName }}".to_owned()),
        _ => None,
    })
}

/// Replaces `{{ .DefaultNetworkInterfaceName }}` in a file, and leaves all else as it is.
pub(crate) fn default_interface(content: Vec<u8>, instance: &Instance) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(&content) else { return content };
    let filled = replace(text, |variable| match variable.trim() {
        ".DefaultNetworkInterfaceName" => Some(instance.default_interface.clone()),
        _ => Some(format!("{{{{{variable}}}}}")),
    });
    filled.map_or_else(|_| content.clone(), String::into_bytes)
}

fn replace(text: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let (mut filled, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((variable, behind)) = after.split_once("}}") else { break };
        filled.push_str(before);
        filled.push_str(&value(variable).ok_or_else(|| variable.trim().to_owned())?);
        rest = behind;
    }
    Ok(filled + rest)
}
