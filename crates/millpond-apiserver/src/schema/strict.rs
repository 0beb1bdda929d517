//! shim
#![allow(missing_docs, unused_variables)]
use super::SchemaRef;
use serde_json::Value;
pub fn parse_json(b: &[u8]) -> Result<(Value, Vec<String>), String> {
    crate::json_text::parse(b).map(|document| (document.value, document.problems))
}
pub fn parse_yaml(b: &[u8]) -> Result<(Value, Vec<String>), String> {
    Ok((serde_saphyr::from_slice(b).map_err(|e| e.to_string())?, vec![]))
}
pub fn unknown_fields(o: &Value, s: &SchemaRef) -> Vec<String> {
    vec![]
}
pub fn check_types(o: &Value, s: &SchemaRef) -> Result<(), String> {
    Ok(())
}
pub fn go_json_type(o: &Value) -> &'static str {
    "value"
}
