//! Finds the examples: what a reader would type, in help, in README and in the other documents.

/// A command line that is shown, and what is shown of its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// Where it stands.
    pub place: String,
    /// What is typed.
    pub command: String,
    /// What is said about it behind it.
    pub remark: String,
    /// Lines of output below it.
    pub output: Vec<String>,
}

/// Programs that examples begin with.
const PROGRAMS: [&str; 8] =
    ["bimetal", "target/release/bimetal", "cargo", "./test", "nbdinfo", "nbdcopy", "systemctl", "mkdir"];

fn begins_command(text: &str) -> bool {
    text.split_whitespace().next().is_some_and(|word| PROGRAMS.contains(&word))
}

/// What is typed, and the remark that is set off from it by blanks.
fn parted(line: &str) -> (String, String) {
    let at = line.find("   ").or_else(|| line.find("  "));
    let (command, remark) = line.split_at(at.unwrap_or(line.len()));
    (command.trim_end().to_owned(), remark.trim().to_owned())
}

/// Examples among lines that are indented by so many blanks at least, one after the other.
fn among<'t>(place: &str, lines: impl Iterator<Item = &'t str>, indent: usize) -> Vec<Example> {
    let mut found: Vec<Example> = Vec::new();
    let mut continued = false;
    for line in lines {
        let shown = line.len() - line.trim_start().len() >= indent && !line.trim().is_empty();
        let text = line.trim();
        match found.last_mut() {
            Some(last) if continued && shown => {
                let (command, remark) = parted(text.trim_end_matches('\\').trim_end());
                last.command += &format!(" {command}");
                last.remark += &remark;
                continued = text.ends_with('\\');
            }
            _ if shown && begins_command(text) => {
                continued = text.ends_with('\\');
                let (command, remark) = parted(text.trim_end_matches('\\').trim_end());
                found.push(Example { place: place.to_owned(), command, remark, output: Vec::new() });
            }
            Some(last) if shown && last.place == place => last.output.push(text.to_owned()),
            _ => {}
        }
    }
    found
}

/// The examples of a document: its blocks of code, which are indented by four blanks or fenced.
pub fn of_document(name: &str, text: &str) -> Vec<Example> {
    let mut blocks: Vec<Vec<String>> = vec![Vec::new()];
    let (mut fenced, mut after_blank) = (false, true);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            blocks.push(Vec::new());
        } else if fenced {
            blocks.last_mut().expect("a block").push(format!("    {line}"));
        } else if line.starts_with("    ") && (after_blank || !blocks.last().expect("a block").is_empty()) {
            blocks.last_mut().expect("a block").push(line.to_owned());
        } else {
            blocks.push(Vec::new());
        }
        after_blank = line.trim().is_empty();
    }
    let block = |lines: &Vec<String>| among(name, lines.iter().map(String::as_str), 4);
    blocks.iter().flat_map(block).collect()
}

/// The examples of a command's help.
pub fn of_help(name: &str, text: &str) -> Vec<Example> {
    let lines = text.lines().skip_while(|line| !matches!(*line, "Examples:" | "Example:")).skip(1);
    let mut found = among(name, lines.take_while(|line| !line.is_empty()), 2);
    // What follows an example of help explains it.
    found.iter_mut().for_each(|example| example.output.clear());
    found
}

/// Words as a shell would have them: enough of its rules for what is shown.
#[allow(dead_code)]
pub fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut begun) = (Vec::new(), String::new(), None, false);
    for c in command.chars() {
        match quote {
            Some(end) if c == end => quote = None,
            None if matches!(c, '\'' | '"') => (quote, begun) = (Some(c), true),
            None if c.is_whitespace() => {
                if begun {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            _ => {
                word.push(c);
                begun = true;
            }
        }
    }
    if begun {
        words.push(word);
    }
    words
}
