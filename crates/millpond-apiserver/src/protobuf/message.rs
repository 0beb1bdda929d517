//! Messages of built-in types as JSON objects.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Number, Value};

use super::Problem;
use super::plan::{Field, Plan, Shape, Target, plan_at, schema_props};
use super::reader::{LENGTH, Reader, Tag};
use crate::json_text;
use crate::schema::{MapValue, Wire};
use crate::store::MAX_OBJECT_DEPTH;

/// Levels of objects and lists in a result, JSON that is embedded in it included: those that may be stored.
pub(super) const MAX_DEPTH: usize = MAX_OBJECT_DEPTH;

/// Limit on the memory of a decoded body, in values. A body of 3 MB that consists of empty messages would otherwise
/// become a hundred times as large.
pub(super) const MAX_COST: usize = 1_000_000;

/// The cost of an object beyond its values: a map with capacity for eleven entries.
const OBJECT_COST: usize = 10;

/// First second of year 1, Go's zero time.
const ZERO_TIME_SECONDS: i64 = -62_135_596_800;

/// Decodes one body.
pub(super) struct Decoder {
    cost_left: usize,
    depth: usize,
}

type Object = Map<String, Value>;

impl Decoder {
    pub(super) fn new() -> Self {
        Self { cost_left: MAX_COST, depth: 0 }
    }

    /// The outermost message.
    pub(super) fn root(&mut self, index: u16, bytes: &[u8]) -> Result<Object, Problem> {
        let mut object = Object::new();
        self.message(plan_at(index), bytes, &mut object)?;
        Ok(object)
    }

    /// Adds the fields of a message to an object. A message that occurs twice is merged, as in Go.
    fn message(&mut self, plan: &Plan, bytes: &[u8], object: &mut Object) -> Result<(), Problem> {
        self.spend(OBJECT_COST)?;
        self.fields(plan, [0, 0], bytes, object)
    }

    fn fields(&mut self, plan: &Plan, within: [u8; 2], bytes: &[u8], object: &mut Object) -> Result<(), Problem> {
        let mut reader = Reader::new(bytes);
        while let Some(tag) = reader.tag(plan.name)? {
            match plan.find(within, tag.number) {
                Some(Target::Field(field)) => self.field(field, &tag, &mut reader, object)?,
                Some(Target::Embedded) => {
                    let embedded = reader.bytes(&tag, plan.name)?;
                    // Numbers in the table fit a byte.
                    let number = tag.number as u8;
                    let within = if within[0] == 0 { [number, 0] } else { [within[0], number] };
                    self.fields(plan, within, embedded, object)?;
                }
                None => reader.skip(&tag)?,
            }
        }
        Ok(())
    }

    fn field(&mut self, field: &Field, tag: &Tag, reader: &mut Reader<'_>, object: &mut Object) -> Result<(), Problem> {
        match field.shape {
            Shape::Single => {
                let before = object.remove(field.name);
                let value = self.value(field, tag, reader, before)?;
                object.insert(field.name.to_owned(), value);
            }
            Shape::List => {
                let list = object.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
                let Value::Array(list) = list else { unreachable!("a list field holds a list") };
                self.deeper(|this| this.items(field, tag, reader, list))?;
            }
            Shape::Map => {
                let entry = reader.bytes(tag, field.name)?;
                let map = object.entry(field.name).or_insert_with(|| Value::Object(Object::new()));
                let Value::Object(map) = map else { unreachable!("a map field holds a map") };
                self.deeper(|this| this.entry(field, entry, map))?;
            }
        }
        Ok(())
    }

    /// One item of a list, or several if numbers are packed.
    fn items(
        &mut self,
        field: &Field,
        tag: &Tag,
        reader: &mut Reader<'_>,
        list: &mut Vec<Value>,
    ) -> Result<(), Problem> {
        let packable = matches!(field.wire, Wire::Int | Wire::Bool | Wire::Double);
        if !packable || tag.wire_type != LENGTH {
            list.push(self.value(field, tag, reader, None)?);
            return Ok(());
        }
        let mut packed = Reader::new(reader.bytes(tag, field.name)?);
        while !packed.is_empty() {
            self.spend(1)?;
            list.push(match field.wire {
                Wire::Double => double(packed.raw_fixed64()?)?,
                wire => integer(packed.raw_varint()?, wire, field.narrow),
            });
        }
        Ok(())
    }

    /// One entry of a map: key 1, value 2, either of which may be missing.
    fn entry(&mut self, field: &Field, bytes: &[u8], map: &mut Object) -> Result<(), Problem> {
        let Wire::MapOf(value_wire) = field.wire else { unreachable!("a map field has map values") };
        self.spend(1)?;
        let mut key = String::new();
        let mut value_bytes: &[u8] = &[];
        let mut reader = Reader::new(bytes);
        while let Some(tag) = reader.tag(field.name)? {
            match tag.number {
                1 => key = text(reader.bytes(&tag, field.name)?),
                2 => value_bytes = reader.bytes(&tag, field.name)?,
                _ => reader.skip(&tag)?,
            }
        }
        let value = match value_wire {
            MapValue::String => Value::String(text(value_bytes)),
            MapValue::Bytes => Value::String(BASE64.encode(value_bytes)),
            MapValue::Quantity => quantity(value_bytes)?,
            MapValue::Time => time(value_bytes, 0)?,
            MapValue::StringList => self.strings(value_bytes, 1)?,
            MapValue::SchemaOrStrings => self.schema_or_strings(value_bytes)?,
            MapValue::Message => {
                let index = field.message.expect("a map of messages names their type");
                Value::Object(self.deeper(|this| this.root(index, value_bytes))?)
            }
        };
        map.insert(key, value);
        Ok(())
    }

    /// A value; `before` is what the field held until now.
    fn value(
        &mut self,
        field: &Field,
        tag: &Tag,
        reader: &mut Reader<'_>,
        before: Option<Value>,
    ) -> Result<Value, Problem> {
        self.spend(1)?;
        match field.wire {
            Wire::Int | Wire::Bool => return Ok(integer(reader.varint(tag, field.name)?, field.wire, field.narrow)),
            Wire::Double => return double(reader.fixed64(tag, field.name)?),
            _ => {}
        }
        let bytes = reader.bytes(tag, field.name)?;
        match field.wire {
            Wire::String => Ok(Value::String(text(bytes))),
            Wire::Bytes => Ok(Value::String(BASE64.encode(bytes))),
            Wire::Quantity => quantity(bytes),
            Wire::Time => time(bytes, 0),
            Wire::MicroTime => time(bytes, 6),
            Wire::IntOrString => int_or_string(bytes),
            Wire::RawJson => self.raw_json(field.name, bytes),
            Wire::StringList => self.strings(bytes, 1),
            Wire::SchemaOrArray => self.schema_or_array(bytes),
            Wire::SchemaOrBool => self.schema_or_bool(bytes),
            Wire::SchemaOrStrings => self.schema_or_strings(bytes),
            Wire::Message => {
                let index = field.message.expect("a message field names its type");
                let mut object = match before {
                    Some(Value::Object(object)) => object,
                    _ => Object::new(),
                };
                self.deeper(|this| this.message(plan_at(index), bytes, &mut object))?;
                Ok(Value::Object(object))
            }
            Wire::Int | Wire::Bool | Wire::Double | Wire::MapOf(_) => unreachable!("handled before"),
        }
    }

    fn strings(&mut self, bytes: &[u8], number: u32) -> Result<Value, Problem> {
        let mut list = Vec::new();
        let mut reader = Reader::new(bytes);
        while let Some(tag) = reader.tag("ExtraValue")? {
            if tag.number == number {
                self.spend(1)?;
                list.push(Value::String(text(reader.bytes(&tag, "items")?)));
            } else {
                reader.skip(&tag)?;
            }
        }
        Ok(Value::Array(list))
    }

    fn schema(&mut self, bytes: &[u8]) -> Result<Value, Problem> {
        self.deeper(|this| Ok(Value::Object(this.root(schema_props(), bytes)?)))
    }

    fn schema_or_array(&mut self, bytes: &[u8]) -> Result<Value, Problem> {
        let mut one = Value::Null;
        let mut list = Vec::new();
        let mut reader = Reader::new(bytes);
        while let Some(tag) = reader.tag("JSONSchemaPropsOrArray")? {
            match tag.number {
                1 => one = self.schema(reader.bytes(&tag, "schema")?)?,
                2 => {
                    let item = reader.bytes(&tag, "jSONSchemas")?;
                    list.push(self.deeper(|this| this.schema(item))?);
                }
                _ => reader.skip(&tag)?,
            }
        }
        Ok(if list.is_empty() { one } else { Value::Array(list) })
    }

    fn schema_or_bool(&mut self, bytes: &[u8]) -> Result<Value, Problem> {
        let mut allows = false;
        let mut schema = None;
        let mut reader = Reader::new(bytes);
        while let Some(tag) = reader.tag("JSONSchemaPropsOrBool")? {
            match tag.number {
                1 => allows = reader.varint(&tag, "allows")? != 0,
                2 => schema = Some(self.schema(reader.bytes(&tag, "schema")?)?),
                _ => reader.skip(&tag)?,
            }
        }
        Ok(schema.unwrap_or(Value::Bool(allows)))
    }

    fn schema_or_strings(&mut self, bytes: &[u8]) -> Result<Value, Problem> {
        let mut schema = Value::Null;
        let mut strings = Vec::new();
        let mut reader = Reader::new(bytes);
        while let Some(tag) = reader.tag("JSONSchemaPropsOrStringArray")? {
            match tag.number {
                1 => schema = self.schema(reader.bytes(&tag, "schema")?)?,
                2 => {
                    self.spend(1)?;
                    strings.push(Value::String(text(reader.bytes(&tag, "property")?)));
                }
                _ => reader.skip(&tag)?,
            }
        }
        Ok(if strings.is_empty() { schema } else { Value::Array(strings) })
    }

    /// JSON inside of a message. It counts towards the depth of the whole.
    fn raw_json(&mut self, field: &str, bytes: &[u8]) -> Result<Value, Problem> {
        let mut raw: &[u8] = &[];
        let mut reader = Reader::new(bytes);
        while let Some(tag) = reader.tag("RawExtension")? {
            match tag.number {
                1 => raw = reader.bytes(&tag, "raw")?,
                _ => reader.skip(&tag)?,
            }
        }
        if raw.is_empty() {
            return Ok(Value::Null);
        }
        let value = serde_json::from_slice(raw)
            .map_err(|error| Problem::Json { field: field.to_owned(), reason: error.to_string() })?;
        // The object that holds the field is a level too.
        if self.depth + 1 + json_text::depth(&value) > MAX_DEPTH {
            return Err(Problem::TooDeep);
        }
        Ok(value)
    }

    fn spend(&mut self, cost: usize) -> Result<(), Problem> {
        self.cost_left = self.cost_left.checked_sub(cost).ok_or(Problem::TooLarge)?;
        Ok(())
    }

    /// Does something one level further down.
    fn deeper<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, Problem>) -> Result<T, Problem> {
        if self.depth == MAX_DEPTH {
            return Err(Problem::TooDeep);
        }
        self.depth += 1;
        let result = work(self);
        self.depth -= 1;
        result
    }
}

/// Text, with what is not UTF-8 replaced, as Go's JSON does.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn integer(varint: u64, wire: Wire, narrow: bool) -> Value {
    match wire {
        Wire::Bool => Value::Bool(varint != 0),
        _ if narrow => Value::from(varint as i32),
        _ => Value::from(varint as i64),
    }
}

/// Whole numbers are printed without a fraction, as Go does.
fn double(bytes: [u8; 8]) -> Result<Value, Problem> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let value = f64::from_le_bytes(bytes);
    if value.fract() == 0.0 && value.abs() <= EXACT {
        return Ok(Value::from(value as i64));
    }
    Number::from_f64(value).map(Value::Number).ok_or_else(|| Problem::NotANumber(value.to_string()))
}

fn quantity(bytes: &[u8]) -> Result<Value, Problem> {
    let mut amount = String::new();
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.tag("Quantity")? {
        match tag.number {
            1 => amount = text(reader.bytes(&tag, "string")?),
            _ => reader.skip(&tag)?,
        }
    }
    Ok(Value::String(if amount.is_empty() { "0".to_owned() } else { amount }))
}

/// RFC 3339 in UTC with this many digits of the second; null for the zero time.
fn time(bytes: &[u8], digits: u8) -> Result<Value, Problem> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0_i64, 0_i32);
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.tag("Timestamp")? {
        match tag.number {
            1 => seconds = reader.varint(&tag, "seconds")? as i64,
            2 => nanos = reader.varint(&tag, "nanos")? as i32,
            _ => reader.skip(&tag)?,
        }
    }
    let nanos = if digits == 0 { 0 } else { nanos / 1000 * 1000 };
    if seconds == ZERO_TIME_SECONDS && nanos == 0 {
        return Ok(Value::Null);
    }
    let moment = jiff::Timestamp::new(seconds, nanos).map_err(|_| Problem::Time(seconds))?;
    Ok(Value::String(format!("{moment:.*}", usize::from(digits))))
}

fn int_or_string(bytes: &[u8]) -> Result<Value, Problem> {
    let (mut kind, mut number, mut string) = (0, 0, String::new());
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.tag("IntOrString")? {
        match tag.number {
            1 => kind = reader.varint(&tag, "type")?,
            2 => number = reader.varint(&tag, "intVal")? as i32,
            3 => string = text(reader.bytes(&tag, "strVal")?),
            _ => reader.skip(&tag)?,
        }
    }
    match kind {
        0 => Ok(Value::from(number)),
        1 => Ok(Value::String(string)),
        _ => Err(Problem::IntOrString),
    }
}
