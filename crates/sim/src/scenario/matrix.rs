//! One file, many scenarios: it is run once for each combination of the values of its axes.
//!
//! ```toml
//! name = "{trace} at {share}"
//!
//! [[axis]]
//! name = "trace"
//! values = [{ name = "mail", file = "mail.gz" }, { name = "web", file = "web.gz" }]
//!
//! [[axis]]
//! name = "share"
//! values = ["5%", "10%"]
//!
//! [[without]]
//! trace = "web"
//! share = "5%"
//!
//! [trace]
//! files = ["{trace.file}"]
//! ```

use super::MAX_ENTRIES;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use toml::{Table, Value};

/// Axes of a file at most.
pub const MAX_AXES: usize = 8;
/// Bytes of all scenarios of a file together at most, as text; a value may stand in many places.
const MAX_FILLED_BYTES: usize = 16 << 20;

/// What stands for each axis: its name, and the name of its value, in the order of the file.
pub type Combination = Vec<(String, String)>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Axis {
    name: String,
    values: Vec<Value>,
}

/// Combinations that are not run: all of these axes have one of these values.
type Without = BTreeMap<String, OneOrMore>;

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    fn names(&self) -> &[String] {
        match self {
            OneOrMore::One(name) => std::slice::from_ref(name),
            OneOrMore::More(names) => names,
        }
    }
}

/// Whether the file has axes.
pub(super) fn has_axes(file: &Table) -> bool {
    file.contains_key("axis") || file.contains_key("without")
}

/// The file once for each combination, with its values filled in.
pub(super) fn expand(mut file: Table) -> Result<Vec<(Combination, Table)>, String> {
    let axes: Vec<Axis> = take(&mut file, "axis")?;
    let without: Vec<Without> = take(&mut file, "without")?;
    check(&axes, &without)?;
    let combinations = axes.iter().map(|axis| axis.values.len()).try_fold(1usize, usize::checked_mul);
    let Some(combinations) = combinations.filter(|&all| all <= MAX_ENTRIES) else {
        return Err(format!("all combinations of all axes are more than {MAX_ENTRIES}"));
    };
    let (mut room, bytes) = (MAX_FILLED_BYTES, file.to_string().len());
    let mut found = Vec::new();
    for number in 0..combinations {
        let picked = pick(&axes, number);
        let names: Combination =
            picked.iter().map(|(axis, value)| ((*axis).to_owned(), text(value))).collect();
        if without.iter().any(|without| matches(without, &names)) {
            continue;
        }
        let mut filler = Filler { picked: &picked, room };
        let filled = filler.spend(bytes).and_then(|()| filler.table(&file));
        let filled = filled.map_err(|what| format!("{}: {what}", show(&names)))?;
        room = filler.room;
        found.push((names, filled));
    }
    match found.is_empty() {
        true => Err("[[without]] leaves no combination of the axes".into()),
        false => Ok(found),
    }
}

/// A combination in words.
pub(super) fn show(combination: &Combination) -> String {
    let all: Vec<String> = combination.iter().map(|(axis, value)| format!("{axis} = {value:?}")).collect();
    all.join(", ")
}

fn take<T: for<'de> Deserialize<'de>>(file: &mut Table, key: &str) -> Result<Vec<T>, String> {
    let Some(value) = file.remove(key) else { return Ok(Vec::new()) };
    value.try_into().map_err(|error: toml::de::Error| format!("[[{key}]]: {}", error.message()))
}

fn check(axes: &[Axis], without: &[Without]) -> Result<(), String> {
    if axes.is_empty() || axes.len() > MAX_AXES {
        return Err(format!("{} axes are not from 1 to {MAX_AXES}", axes.len()));
    }
    let mut known = BTreeMap::new();
    for axis in axes {
        let name = &axis.name;
        if name.is_empty() || !name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_') {
            return Err(format!("an axis is called {name:?}: letters, digits and _ are for names"));
        }
        let mut values = BTreeSet::new();
        for value in &axis.values {
            let is_named = match value {
                Value::Table(fields) => fields.get("name").is_some_and(Value::is_str),
                Value::Array(_) | Value::Datetime(_) => false,
                _ => true,
            };
            if !is_named {
                return Err(format!("a value of the axis {name:?} is neither plain nor a table with a name"));
            }
            if !values.insert(text(value)) {
                return Err(format!("the axis {name:?} has the value {:?} twice", text(value)));
            }
        }
        if values.is_empty() {
            return Err(format!("the axis {name:?} has no values"));
        }
        if known.insert(name.clone(), values).is_some() {
            return Err(format!("two axes are called {name:?}"));
        }
    }
    for (axis, names) in without.iter().flatten() {
        let Some(values) = known.get(axis) else {
            return Err(format!("[[without]]: no axis is called {axis:?}"));
        };
        if let Some(unknown) = names.names().iter().find(|name| !values.contains(*name)) {
            return Err(format!("[[without]]: the axis {axis:?} has no value {unknown:?}"));
        }
    }
    match without.iter().any(BTreeMap::is_empty) {
        true => Err("[[without]] says nothing of any axis".into()),
        false => Ok(()),
    }
}

/// The combination of this number: the last axis changes first.
fn pick(axes: &[Axis], mut number: usize) -> Vec<(&str, &Value)> {
    let mut picked = Vec::new();
    for axis in axes.iter().rev() {
        picked.push((axis.name.as_str(), &axis.values[number % axis.values.len()]));
        number /= axis.values.len();
    }
    picked.reverse();
    picked
}

fn matches(without: &Without, names: &Combination) -> bool {
    without.iter().all(|(axis, values)| {
        names.iter().any(|(known, value)| known == axis && values.names().contains(value))
    })
}

/// A value within a text: a table is called by its name.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Table(fields) => fields.get("name").map(text).unwrap_or_default(),
        other => other.to_string(),
    }
}

/// Puts values where the file names them.
struct Filler<'a> {
    picked: &'a [(&'a str, &'a Value)],
    /// Bytes that may still be written.
    room: usize,
}

impl<'a> Filler<'a> {
    fn table(&mut self, table: &Table) -> Result<Table, String> {
        table.iter().map(|(key, value)| Ok((key.clone(), self.value(value)?))).collect()
    }

    fn value(&mut self, value: &Value) -> Result<Value, String> {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(all) => {
                all.iter().map(|one| self.value(one)).collect::<Result<_, _>>().map(Value::Array)
            }
            Value::Table(table) => self.table(table).map(Value::Table),
            plain => Ok(plain.clone()),
        }
    }

    /// A text with its `{...}` filled in. One that is nothing else is whatever the value is.
    fn text(&mut self, from: &str) -> Result<Value, String> {
        let mut filled = String::new();
        let mut rest = from;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((key, behind)) = after.split_once('}') else {
                return Err(format!("{from:?} has a {{ that nothing closes"));
            };
            let value = self.named(key).map_err(|what| format!("{from:?}: {what}"))?;
            if before.is_empty() && behind.is_empty() && filled.is_empty() {
                self.spend(value.to_string().len())?;
                return Ok(value.clone());
            }
            if value.is_array() || value.is_table() && key.contains('.') {
                return Err(format!("{from:?}: {key} is no text"));
            }
            filled.push_str(before);
            filled.push_str(&text(value));
            self.spend(text(value).len())?;
            rest = behind;
        }
        filled.push_str(rest);
        Ok(Value::String(filled))
    }

    /// What `axis` or `axis.field` stands for.
    fn named(&self, key: &str) -> Result<&'a Value, String> {
        let (axis, field) = key.split_once('.').map_or((key, None), |(axis, field)| (axis, Some(field)));
        let Some((_, value)) = self.picked.iter().find(|(name, _)| *name == axis) else {
            return Err(format!("no axis is called {axis:?}"));
        };
        match (value, field) {
            (Value::Table(fields), field) => fields.get(field.unwrap_or("name")).ok_or_else(|| {
                format!("this value of the axis {axis:?} has no field {:?}", field.unwrap_or("name"))
            }),
            (plain, None) => Ok(plain),
            (_, Some(field)) => Err(format!("a plain value of the axis {axis:?} has no field {field:?}")),
        }
    }

    fn spend(&mut self, bytes: usize) -> Result<(), String> {
        let left = self.room.checked_sub(bytes);
        self.room = left.ok_or_else(|| format!("all scenarios are more than {MAX_FILLED_BYTES} bytes"))?;
        Ok(())
    }
}
