//! A machine of its own for one example: a home, volumes, files, and servers, in a folder whose name has a blank.

use crate::common::{self, Guarded, text};
use crate::rules::Need;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long an example may take.
const PATIENCE_SECONDS: &str = "300";

pub struct World {
    _folder: tempfile::TempDir,
    dir: PathBuf,
    servers: Vec<Guarded>,
    large: bool,
    exports: bool,
}

impl World {
    /// A machine on which there is what an example needs.
    pub fn with(needs: &[Need], root: &Path) -> Result<World, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let dir = folder.path().join("a first day");
        for name in ["bin", "home", "run", "fused", "data", "old", "new", "target/release"] {
            std::fs::create_dir_all(dir.join(name)).map_err(|error| error.to_string())?;
        }
        let link = |name: &str| std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_bimetal"), dir.join(name));
        link("bin/bimetal")
            .and_then(|()| link("target/release/bimetal"))
            .map_err(|error| error.to_string())?;
        for name in ["scenarios", "docs"] {
            std::os::unix::fs::symlink(root.join(name), dir.join(name)).map_err(|error| error.to_string())?;
        }
        let large = needs.contains(&Need::LargeDevices);
        let exports = needs.contains(&Need::Export);
        let mut world = World { _folder: folder, dir, servers: Vec::new(), large, exports };
        needs.iter().try_for_each(|need| world.provide(*need))?;
        Ok(world)
    }

    fn provide(&mut self, need: Need) -> Result<(), String> {
        let create = |name: &str, fast: &str, slow: &str| {
            format!(
                "bimetal create {name} --fast {name}.fast?size={fast} --slow {name}.slow?size={slow} && mkdir -p run"
            )
        };
        let csv = "printf '128166372003061629,web,0,Read,0,4096,100\\n128166372013061629,web,0,Write,8192,512,9\\n'";
        match need {
            Need::LargeDevices => self.run("truncate -s 100G nvme.img && truncate -s 4000787030016 sdb.img", 0)?,
            Need::Devices => self.run("truncate -s 64M sdb.img sdc.img scratch.img", 0)?,
            Need::Films => self.run(&create("films", "100G", "4T"), 0)?,
            Need::SmallFilms => self.run(&create("films", "64M", "256M"), 0)?,
            Need::DeadDisk => self.run("rm films.slow", 0)?,
            Need::Photos => self.run(&create("photos", "64M", "256M"), 0)?,
            Need::Volume => self.run(&create("./v.toml", "16G", "1T").replace("./v.toml.", "v."), 0)?,
            Need::Serves(name) => {
                let socket = format!("--nbd unix:run/{}.sock", name.trim_start_matches("./").trim_end_matches(".toml"));
                let (server, _) = self.start(&format!("bimetal serve {name} {socket} --flight-recorder 64M"))?;
                self.servers.push(server);
                String::new()
            }
            Need::Export => {
                self.run(&create("other", "64M", "256M"), 0)?;
                self.provide(Need::Serves("other"))?;
                String::new()
            }
            Need::Job => self.run("printf '[job]\\nrw=randread\\nsize=1m\\nnumber_ios=64\\n' > random.fio", 0)?,
            Need::Records => self.run(
                "truncate -s 4M t && for run in before after; do bimetal lab fio random.fio --target t --record $run.json; done",
                0,
            )?,
            // Of several formats it is known by its contents.
            Need::Blktrace => self.run(&format!("{csv} > disk.blktrace.0"), 0)?,
            Need::Trace => self.run("bimetal trace convert disk.blktrace.* -o disk.trace && cp disk.trace main.trace", 0)?,
            Need::Csv => self.run(&format!("{csv} | gzip > web_0.csv.gz"), 0)?,
            Need::OldDisk => self.run("truncate -s 8M old-disk.img", 0)?,
            Need::Image => self.run("truncate -s 1M some.img", 0)?,
        };
        Ok(())
    }

    /// What is shown, with the places of this machine in it.
    pub fn adapted(&self, text: &str) -> String {
        let group =
            common::text(&Command::new("id").arg("-gn").output().map(|out| out.stdout).unwrap_or_default());
        let fast = if self.large { "nvme.img" } else { "sdc.img" };
        let mut text = text.to_owned();
        if self.exports {
            let here = "nbd+unix:///?socket=run/other.sock";
            text = text.replace("nbd://10.0.0.7/films", &format!("'{here}'"));
            for name in ["films", ""] {
                text = text.replace(&format!("nbd+unix:///{name}?socket=/run/films.sock"), here);
            }
        }
        [
            ("/dev/disk/by-id/nvme-SSD-part4", fast),
            ("/dev/nvme0n1p4", fast),
            ("/dev/md/films", fast),
            ("/dev/sdb", "sdb.img"),
            ("/dev/sdc", "sdc.img"),
            ("/mnt/fused", "fused"),
            ("/srv/volume", "volume"),
            ("/srv/", ""),
            ("/run/", "run/"),
            ("/tmp/", "run/"),
            ("nbd://localhost/films", "'nbd+unix:///?socket=run/films.sock'"),
            (":10809", ":0"),
            (":8417", ":0"),
            ("--socket-group disk", &format!("--socket-group {}", group.trim())),
            ("/etc/bimetal", "home/.config/bimetal"),
            ("a block device of", "a file of"),
            (", physical sectors of 4096", ""),
        ]
        .iter()
        .fold(text, |text, (shown, here)| text.replace(shown, here))
    }

    /// What was said, with the places of this machine left out.
    pub fn told(&self, line: &str) -> String {
        let program = Path::new(env!("CARGO_BIN_EXE_bimetal")).display().to_string();
        let here = format!("{}/", self.dir.display());
        let port = |line: String| match line.split_once("127.0.0.1:") {
            Some((before, after)) => {
                format!("{before}127.0.0.1:0{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
            }
            None => line,
        };
        port(
            line.trim()
                .replace(&here, "")
                .replace(&here.replace(' ', "%20"), "")
                .replace(&program, "bimetal"),
        )
    }

    fn shell(&self, command: &str) -> Command {
        let mut timeout = Command::new("timeout");
        timeout.args(["--signal=KILL", PATIENCE_SECONDS, "bash"]);
        self.among(timeout, command)
    }

    /// A shell that knows only this machine.
    fn among(&self, mut shell: Command, command: &str) -> Command {
        shell.args(["-euc", command]).current_dir(&self.dir);
        let path = std::env::var("PATH").unwrap_or_default();
        shell.env("PATH", format!("{}:{path}", self.dir.join("bin").display()));
        let home = self.dir.join("home");
        shell.env("HOME", &home).env("XDG_RUNTIME_DIR", self.dir.join("run"));
        // Root's would be those of this machine.
        shell.env("XDG_CONFIG_HOME", home.join(".config"));
        for variable in ["XDG_DATA_HOME", "BIMETAL_TRACES", "BIMETAL_LOG"] {
            shell.env_remove(variable);
        }
        shell.stdin(Stdio::null());
        shell
    }

    /// Runs a command line to its end; gives what it printed.
    pub fn run(&self, command: &str, code: i32) -> Result<String, String> {
        let output = self.shell(command).output().map_err(|error| error.to_string())?;
        match output.status.code() == Some(code) {
            true => Ok(text(&output.stdout)),
            false => Err(format!("{command}: {}, {}", output.status, text(&output.stderr))),
        }
    }

    /// Starts a server; gives the lines by which it said that it is ready.
    fn start(&self, command: &str) -> Result<(Guarded, Vec<String>), String> {
        // Not under `timeout`, which would hand on each signal twice.
        let mut shell = self.among(Command::new("bash"), &format!("exec {command}"));
        shell.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Guarded(shell.spawn().map_err(|error| error.to_string())?);
        let mut lines = BufReader::new(child.0.stdout.take().expect("its output")).lines();
        let mut said = Vec::new();
        match lines.next() {
            Some(Ok(line)) if line.starts_with("ready: ") => said.push(line),
            other => {
                let mut stderr = String::new();
                use std::io::Read as _;
                let _ = child.0.stderr.take().expect("its log").read_to_string(&mut stderr);
                return Err(format!("{command}: is not ready: {other:?}, {stderr}"));
            }
        }
        // Nobody else reads what it says from here on, and it must not wait for that.
        std::thread::spawn(move || lines.for_each(drop));
        Ok((child, said))
    }

    /// Runs a server, or whatever goes on until it is told to end, and ends it.
    pub fn serve(&self, command: &str) -> Result<String, String> {
        let (mut child, said) = self.start(command)?;
        std::thread::sleep(Duration::from_millis(200));
        let status = common::terminate(&mut child.0);
        match status.success() {
            true => Ok(said.join("\n")),
            false => Err(format!("{command}: {status}")),
        }
    }
}
