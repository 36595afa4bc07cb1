//! What systemd's unit files say of a service, as far as `polypath enable` has to know, and the drop-in that it writes.

use std::fmt::Write;
use std::time::Duration;

use thiserror::Error;

use super::time_span;
use crate::command::service_end::SERVICE_END;

/// The first line of a drop-in of ours.
pub(super) const MARK: &str = "# Written by `polypath enable`; `polypath disable` removes it.";
/// Follows the mark where the folder of the drop-in was made for it.
pub(super) const MADE_FOLDER: &str = "# Its folder was made for it.";

/// Why a service can't be started under Polypath, in the words that follow its name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum Refusal {
    #[error("it has no ExecStart=; expected a service that starts a program")]
    NoProgram,
    #[error("ExecStart={0}: not understood; expected a program and its arguments")]
    NotUnderstood(String),
    #[error(
        "ExecStart={0}: it gives its program another name (prefix @), which is lost; expected none, or the program's own"
    )]
    OtherName(String),
    #[error("{setting}: {why}; expected {expected}")]
    Setting { setting: String, why: &'static str, expected: &'static str },
}

/// How the program is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum With {
    /// In place, by `polypath preload`: ports, capabilities and the process stay as they are
    Preload,
    /// In a network of its own, by `polypath run`: static programs, too; servers need their ports published (-p)
    Run,
}

impl With {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Preload => "preload",
            Self::Run => "run",
        }
    }
}

/// A line of `ExecStart=`: what systemd reads before the program, and the rest as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExecStart {
    prefix: String,
    rest: String,
}

impl ExecStart {
    fn parse(value: &str) -> Result<Self, Refusal> {
        let program = value.trim_start_matches(['-', ':', '+', '!', '@', '|']);
        let mut prefix = value[..value.len() - program.len()].to_string();
        let wrong = || Refusal::NotUnderstood(value.to_string());
        let (first, after) = first_word(program).ok_or_else(wrong)?;
        // Several commands in a line, which is of old. In quotes, it is for the program.
        if raw_words(program).any(|word| word == ";") {
            return Err(wrong());
        }
        if !prefix.contains('@') {
            return Ok(Self { prefix, rest: program.to_string() });
        }
        let (name, _) = first_word(after).ok_or_else(wrong)?;
        if last_part(name) != last_part(first) {
            return Err(Refusal::OtherName(value.to_string()));
        }
        prefix.retain(|letter| letter != '@');
        let arguments = after.trim_start()[raw_word_length(after.trim_start())..].trim_start();
        let rest = format!("{} {arguments}", &program[..raw_word_length(program)]);
        Ok(Self { prefix, rest: rest.trim_end().to_string() })
    }

    /// What its prefix says of the rights with which it is started.
    fn rights(&self) -> &str {
        let is_right = |letter: char| matches!(letter, '+' | '!');
        let begin = self.prefix.find(is_right).unwrap_or(self.prefix.len());
        let rest = &self.prefix[begin..];
        &rest[..rest.find(|letter| !is_right(letter)).unwrap_or(rest.len())]
    }

    /// The file that is started, without quotes.
    pub(super) fn program(&self) -> &str {
        first_word(&self.rest).map_or("", |(word, _)| word)
    }
}

/// How long the first word is, with its quotes.
fn raw_word_length(text: &str) -> usize {
    let (mut quote, mut is_escaped) = (None, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if quote == Some(letter) => quote = None,
            '"' | '\'' if quote.is_none() => quote = Some(letter),
            _ if quote.is_none() && letter.is_whitespace() => return at,
            _ => {}
        }
    }
    text.len()
}

/// All words as they are written.
fn raw_words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text.trim_start();
    std::iter::from_fn(move || {
        let (word, after) = rest.split_at(raw_word_length(rest));
        rest = after.trim_start();
        (!word.is_empty()).then_some(word)
    })
}

/// The first word without its quotes, and what follows.
fn first_word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let (word, rest) = text.split_at(raw_word_length(text));
    let word = word.trim_matches(['"', '\'']);
    (!word.is_empty()).then_some((word, rest))
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// What the files of a service say, in the order in which systemd reads them.
#[derive(Debug, Default)]
pub(super) struct Service {
    assignments: Vec<(String, String)>,
}

impl Service {
    /// Adds a file: the unit's own first, then its drop-ins.
    pub(super) fn read(&mut self, text: &str) {
        let mut section = String::new();
        for line in joined_lines(text) {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = name.to_string();
            } else if section == "Service"
                && let Some((key, value)) = line.split_once('=')
            {
                self.assignments.push((key.trim().to_string(), value.trim().to_string()));
            }
        }
    }

    /// What a setting was last set to; nothing if that is empty.
    fn last(&self, key: &str) -> Option<&str> {
        let of_key = self.assignments.iter().rev().find(|(name, _)| name == key);
        of_key.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    fn is_on(&self, key: &str) -> bool {
        self.last(key).is_some_and(|value| {
            let off = ["no", "false", "off", "0"];
            !off.contains(&value.to_ascii_lowercase().as_str())
        })
    }

    /// All values of a setting that adds up; an empty one begins anew.
    fn list(&self, key: &str) -> Vec<&str> {
        let mut values = Vec::new();
        for (_, value) in self.assignments.iter().filter(|(name, _)| name == key) {
            if value.is_empty() { values.clear() } else { values.push(value.as_str()) }
        }
        values
    }

    /// What it starts.
    pub(super) fn starts(&self) -> Result<Vec<ExecStart>, Refusal> {
        let values = self.list("ExecStart");
        if values.is_empty() {
            return Err(Refusal::NoProgram);
        }
        values.into_iter().map(ExecStart::parse).collect()
    }

    /// Refuses what can't work this way.
    pub(super) fn check(&self, with: With, has_sockets: bool) -> Result<(), Refusal> {
        let refuse = |key: &str, why, expected| {
            let setting = format!("{key}={}", self.last(key).unwrap_or_default());
            Err(Refusal::Setting { setting, why, expected })
        };
        if self.is_on("PrivateNetwork") {
            return refuse("PrivateNetwork", "it has no network", "a service with one");
        }
        for key in ["RootDirectory", "RootImage"] {
            if self.last(key).is_some() {
                return refuse(key, "Polypath isn't in there", "a service in the host's own files");
            }
        }
        if with == With::Preload {
            return Ok(());
        }
        if self.last("Type") == Some("forking") {
            let why = "`polypath run` ends with the process that it started, which this program leaves";
            return refuse("Type", why, "--with preload, or a program that stays in the foreground");
        }
        if has_sockets {
            let setting = "its socket unit".to_string();
            let why = "the sockets are systemd's, and not in the network of `polypath run`";
            return Err(Refusal::Setting { setting, why, expected: "--with preload" });
        }
        for key in ["RestrictNamespaces", "PrivateDevices"] {
            if self.is_on(key) {
                let why = "`polypath run` needs a network namespace and /dev/net/tun";
                return refuse(key, why, "--with preload");
            }
        }
        Ok(())
    }

    /// The setting by which it has no TUN device, if there is one.
    pub(super) fn hides_tun(&self) -> Option<String> {
        let is_allowed = || self.list("DeviceAllow").iter().any(|value| value.starts_with("/dev/net/tun"));
        let is_closed = matches!(self.last("DevicePolicy"), Some("closed" | "strict"));
        let key = match (self.is_on("PrivateDevices"), is_closed && !is_allowed()) {
            (true, _) => "PrivateDevices",
            (false, true) => "DevicePolicy",
            (false, false) => return None,
        };
        Some(format!("{key}={}", self.last(key).unwrap_or_default()))
    }

    /// The content of the drop-in.
    pub(super) fn drop_in(&self, start: &Start<'_>, starts: &[ExecStart], made_folder: bool) -> String {
        let mut text = format!("{MARK}\n");
        if made_folder {
            text += &format!("{MADE_FOLDER}\n");
        }
        text += "[Service]\nExecStart=\n";
        let words: String = start.words.iter().map(|word| format!(" {}", quoted(word))).collect();
        for ExecStart { prefix, rest } in starts {
            let (polypath, with) = (quoted(start.polypath), start.with.name());
            let _ = writeln!(text, "ExecStart={prefix}{polypath} {with}{words} -- {rest}");
        }
        if start.with == With::Run && matches!(self.last("Type"), Some("notify" | "notify-reload")) {
            text += "# The program is a child of Polypath, which starts it.\nNotifyAccess=all\n";
        }
        if start.is_ours {
            self.end_in_order(start, starts, &mut text);
            self.make_room(start, &mut text);
        }
        if start.needs_tun {
            self.allow_tun(&mut text);
        }
        text
    }

    /// Once the main process has ended, systemd may kill the process that keeps the connections, and the one that takes down what
    /// was set up. What runs before that gives them the time that the service has to stop.
    fn end_in_order(&self, start: &Start<'_>, starts: &[ExecStart], text: &mut String) {
        let kill_mode = self.last("KillMode");
        if matches!(kill_mode, Some("process" | "none")) {
            return;
        }
        // systemd has 90 seconds where nothing is said.
        let allowed = self.last("TimeoutStopSec").or(self.last("TimeoutSec")).unwrap_or("90");
        let within = time_span::parse(allowed).map(|allowed| {
            let within = allowed.saturating_sub(Duration::from_secs(1)).as_secs().max(1);
            format!(" --within={within}")
        });
        // With the rights of what it ends.
        let rights = starts.first().map_or("", |start| start.rights());
        let command =
            format!("-{rights}{} {SERVICE_END}{}", quoted(start.polypath), within.unwrap_or_default());
        text.push_str("# What the program wrote is delivered before systemd ends the rest of the service.\n");
        // There it is killed as soon as the main process has ended by another command that is to stop it.
        if start.with == With::Preload && kill_mode == Some("mixed") {
            let _ = writeln!(text, "ExecStop={command}");
        }
        let _ = writeln!(text, "ExecStopPost={command}");
    }

    /// A place for the sockets of its stacks, which users other than root have in their sessions only.
    fn make_room(&self, start: &Start<'_>, text: &mut String) {
        const VARIABLE: &str = "POLYPATH_RUNTIME_DIR=";
        let has_one = self.list("Environment").iter().any(|value| value.contains(VARIABLE));
        if self.is_roots() || start.is_users || has_one {
            return;
        }
        // Notes of what was set up outlive a kill, so that the next start takes it down. Folders of its own stay as they are.
        if self.list("RuntimeDirectory").is_empty() {
            text.push_str("RuntimeDirectoryPreserve=yes\n");
        }
        let _ = write!(text, "RuntimeDirectory=polypath-%N\nEnvironment={VARIABLE}%t/polypath-%N\n");
    }

    fn is_roots(&self) -> bool {
        matches!(self.last("User"), None | Some("root" | "0")) && !self.is_on("DynamicUser")
    }

    /// A capability is in the set that bounds those of the service. Without a set all are. The first list of capabilities begins one,
    /// as the empty value does with none; others are added, and those after `~` are taken away. `~` alone means all.
    fn is_bounded_to_include(&self, capability: &str) -> bool {
        let values = self.assignments.iter().filter(|(name, _)| name == "CapabilityBoundingSet");
        let included = values.fold(None, |so_far: Option<bool>, (_, value)| {
            let is_named = |list: &str| list.split_whitespace().any(|name| name == capability);
            Some(match value.strip_prefix('~').map(str::trim) {
                Some("") => true,
                Some(taken) => so_far.unwrap_or(true) && !is_named(taken),
                None if value.is_empty() => false,
                None => so_far.unwrap_or(false) || is_named(value),
            })
        });
        included.unwrap_or(true)
    }

    /// What a TUN device takes, where the service hasn't got it.
    fn allow_tun(&self, text: &mut String) {
        const CAPABILITY: &str = "CAP_NET_ADMIN";
        let mut line = |key: &str, value: &str| {
            let _ = writeln!(text, "{key}={value}");
        };
        if !self.is_bounded_to_include(CAPABILITY) {
            line("CapabilityBoundingSet", CAPABILITY);
        }
        if !self.is_roots()
            && !self.list("AmbientCapabilities").iter().any(|value| value.contains(CAPABILITY))
        {
            line("AmbientCapabilities", CAPABILITY);
        }
        let families = self.list("RestrictAddressFamilies");
        if families.iter().any(|value| !value.starts_with('~') && *value != "none") {
            line("RestrictAddressFamilies", "AF_UNIX AF_NETLINK AF_INET AF_INET6");
        }
        let is_closed = matches!(self.last("DevicePolicy"), Some("closed" | "strict"));
        if self.is_on("PrivateDevices") {
            line("PrivateDevices", "no");
            line("DevicePolicy", "closed");
        }
        if self.is_on("PrivateDevices") || is_closed {
            line("DeviceAllow", "/dev/net/tun rw");
        }
    }
}

/// What is written before each program.
#[derive(Debug)]
pub(super) struct Start<'a> {
    pub(super) polypath: &'a str,
    pub(super) with: With,
    pub(super) words: &'a [String],
    /// A stack of ours may carry its connections.
    pub(super) is_ours: bool,
    /// It is to have a TUN device.
    pub(super) needs_tun: bool,
    /// It is a service of a user's manager, in a session.
    pub(super) is_users: bool,
}

/// Lines without comments, with those that a backslash carries on in one.
fn joined_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut begun = String::new();
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with(['#', ';']) || line.is_empty() && begun.is_empty() {
            continue;
        }
        match line.strip_suffix('\\') {
            Some(part) => begun = begun + part + " ",
            None => lines.push(std::mem::take(&mut begun) + line),
        }
    }
    lines.extend(Some(begun).filter(|line| !line.is_empty()));
    lines
}

/// A word as systemd reads it: its specifiers, variables and quotes mean themselves.
fn quoted(word: &str) -> String {
    let doubled = word.replace('%', "%%").replace('$', "$$");
    let is_plain = |letter: char| letter.is_alphanumeric() || "_./:=,@+-%$[]".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return doubled;
    }
    format!("\"{}\"", doubled.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(text: &str) -> Service {
        let mut service = Service::default();
        service.read(text);
        service
    }

    /// The lines of the drop-in below its section.
    fn lines(service: &str, with: With, words: &[&str], needs_tun: bool) -> Result<Vec<String>, Refusal> {
        let service = self::service(service);
        service.check(with, false)?;
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let start = start(with, &words, needs_tun);
        let text = service.drop_in(&start, &service.starts()?, false);
        // How it ends is the same for all, but where that is the question.
        let is_of_end = |line: &&str| line.starts_with("ExecStop") || line.starts_with("# What the program");
        Ok(text.lines().skip(3).filter(|line| !is_of_end(line)).map(str::to_string).collect())
    }

    fn start(with: With, words: &[String], needs_tun: bool) -> Start<'_> {
        let polypath = "/usr/bin/polypath";
        Start { polypath, with, words, is_ours: true, needs_tun, is_users: false }
    }

    #[test]
    fn what_keeps_the_connections_has_the_time_to_stop() {
        let ends = |with, settings: &str| {
            let service = service(&format!("[Service]\nExecStart=-!/a\n{settings}\n"));
            let text = service.drop_in(&start(with, &[], false), &service.starts().expect("one"), false);
            let ends = text.lines().filter(|line| line.starts_with("ExecStop")).map(str::to_string);
            ends.collect::<Vec<_>>()
        };
        let post = |within: &str| format!("ExecStopPost=-!/usr/bin/polypath service-end{within}");
        let stop = |within: &str| format!("ExecStop=-!/usr/bin/polypath service-end{within}");
        // As Debian's nginx has it.
        let nginx = "ExecStop=-/sbin/start-stop-daemon\nTimeoutStopSec=5\nKillMode=mixed";
        assert_eq!(ends(With::Preload, nginx), [stop(" --within=4"), post(" --within=4")]);
        assert_eq!(ends(With::Run, nginx), [post(" --within=4")]);
        assert_eq!(ends(With::Preload, ""), [post(" --within=89")]);
        assert_eq!(ends(With::Preload, "TimeoutStopSec=infinity"), [post("")]);
        assert_eq!(ends(With::Preload, "TimeoutSec=1s"), [post(" --within=1")]);
        for mode in ["process", "none"] {
            assert!(ends(With::Preload, &format!("KillMode={mode}")).is_empty(), "nothing is killed: {mode}");
        }
    }

    #[test]
    fn a_service_of_another_user_has_a_place_for_sockets() {
        let room = ["RuntimeDirectory=polypath-%N", "Environment=POLYPATH_RUNTIME_DIR=%t/polypath-%N"];
        let added = |with, settings: &str| {
            let text = format!("[Service]\nExecStart=/a\n{settings}\n");
            lines(&text, with, &[], false).expect("it is understood")[1..].to_vec()
        };
        let notes = "RuntimeDirectoryPreserve=yes";
        for with in [With::Preload, With::Run] {
            assert_eq!(added(with, "User=web\nRuntimeDirectory=web"), room);
            assert_eq!(added(with, "DynamicUser=yes"), [notes, room[0], room[1]]);
            assert!(added(with, "User=root").is_empty());
            assert!(added(with, "User=web\nEnvironment=POLYPATH_RUNTIME_DIR=/run/web").is_empty());
        }
        let service = service("[Service]\nExecStart=/a\nUser=web\n");
        for (is_ours, is_users) in [(false, false), (true, true)] {
            let start = Start { is_ours, is_users, ..start(With::Preload, &[], false) };
            let text = service.drop_in(&start, &service.starts().expect("one"), false);
            assert!(!text.contains("RuntimeDirectory"), "{text}");
        }
    }

    #[test]
    fn polypath_comes_before_the_program_and_after_the_prefix() {
        for (start, expected) in [
            ("/usr/sbin/a -g 'b c;' $D %i", "/usr/bin/polypath preload -- /usr/sbin/a -g 'b c;' $D %i"),
            ("-/a", "-/usr/bin/polypath preload -- /a"),
            ("+!!/a b", "+!!/usr/bin/polypath preload -- /a b"),
            ("-@/usr/bin/a a --b", "-/usr/bin/polypath preload -- /usr/bin/a --b"),
            ("/bin/sh -c \"a ; b\"", "/usr/bin/polypath preload -- /bin/sh -c \"a ; b\""),
            ("/a 'b \\' ; c' \\; d", "/usr/bin/polypath preload -- /a 'b \\' ; c' \\; d"),
            ("@\"/opt/a b\" \"/opt/a b\"", "/usr/bin/polypath preload -- \"/opt/a b\""),
        ] {
            let lines = lines(&format!("[Service]\nExecStart={start}\n"), With::Preload, &[], false);
            assert_eq!(lines.expect("it is understood"), [format!("ExecStart={expected}")]);
        }
        for start in ["@/usr/bin/a other", "@/usr/bin/a", "/a ; /b", "/a \"b\" ; /c", "/a ;", "-"] {
            assert!(
                lines(&format!("[Service]\nExecStart={start}\n"), With::Preload, &[], false).is_err(),
                "{start}"
            );
        }
    }

    #[test]
    fn what_comes_later_counts_and_an_empty_value_begins_anew() {
        let text = "[Unit]\nExecStart=/no\n[Service]\n# ExecStart=/no\nExecStart=/a \\\n  -b \\\n# why\n  -c\nExecStart=/d\n";
        let mut service = service(text);
        let programs = |service: &Service| -> Vec<String> {
            service.starts().expect("some").iter().map(|start| start.program().to_string()).collect()
        };
        assert_eq!(programs(&service), ["/a", "/d"]);
        assert_eq!(service.starts().expect("some")[0].rest.split_whitespace().last(), Some("-c"));
        service.read("[Service]\nExecStart=\nExecStart=-/e f\n");
        assert_eq!(programs(&service), ["/e"]);
        service.read("[Service]\nExecStart=\n");
        assert_eq!(service.starts(), Err(Refusal::NoProgram));
    }

    #[test]
    fn words_mean_to_systemd_what_they_mean_to_us() {
        let words = ["--interface=wlan0,priority=1", "--name=50 % $HOME", "-p", "[::]:80:80"];
        let lines = lines("[Service]\nExecStart=/a\n", With::Run, &words, false).expect("it is understood");
        let expected = "ExecStart=/usr/bin/polypath run --interface=wlan0,priority=1 \"--name=50 %% $$HOME\" -p [::]:80:80 -- /a";
        assert_eq!(lines, [expected]);
    }

    #[test]
    fn a_service_gets_what_a_device_takes_and_no_more() {
        let base = "[Service]\nExecStart=/a\n";
        let added = |more: &str| {
            let lines = lines(&format!("{base}{more}"), With::Preload, &[], true).expect("it is understood");
            lines[1..].to_vec()
        };
        assert!(added("").is_empty());
        assert!(added("User=root\nCapabilityBoundingSet=CAP_NET_ADMIN\n").is_empty());
        assert!(added("CapabilityBoundingSet=~CAP_SYS_ADMIN\n").is_empty());
        assert_eq!(added("CapabilityBoundingSet=~CAP_NET_ADMIN\n"), ["CapabilityBoundingSet=CAP_NET_ADMIN"]);
        for bounded in [
            "",
            "CAP_KILL",
            "CAP_NET_ADMIN\nCapabilityBoundingSet=",
            "~\nCapabilityBoundingSet=~CAP_NET_ADMIN",
        ] {
            let added = added(&format!("CapabilityBoundingSet={bounded}\n"));
            assert_eq!(added, ["CapabilityBoundingSet=CAP_NET_ADMIN"], "{bounded}");
        }
        for bounded in ["~", "\nCapabilityBoundingSet=~", "\nCapabilityBoundingSet=CAP_KILL CAP_NET_ADMIN"] {
            assert!(added(&format!("CapabilityBoundingSet={bounded}\n")).is_empty(), "{bounded}");
        }
        let all = "User=web\nCapabilityBoundingSet=CAP_NET_BIND_SERVICE\nRestrictAddressFamilies=AF_INET\nPrivateDevices=yes\n";
        assert_eq!(
            added(all),
            [
                "RuntimeDirectoryPreserve=yes",
                "RuntimeDirectory=polypath-%N",
                "Environment=POLYPATH_RUNTIME_DIR=%t/polypath-%N",
                "CapabilityBoundingSet=CAP_NET_ADMIN",
                "AmbientCapabilities=CAP_NET_ADMIN",
                "RestrictAddressFamilies=AF_UNIX AF_NETLINK AF_INET AF_INET6",
                "PrivateDevices=no",
                "DevicePolicy=closed",
                "DeviceAllow=/dev/net/tun rw",
            ]
        );
    }

    #[test]
    fn what_hides_the_device_is_named() {
        for (settings, expected) in [
            ("PrivateDevices=yes", Some("PrivateDevices=yes")),
            ("PrivateDevices=no", None),
            ("DevicePolicy=closed", Some("DevicePolicy=closed")),
            ("DevicePolicy=closed\nDeviceAllow=/dev/net/tun rw", None),
            ("", None),
        ] {
            let service = service(&format!("[Service]\nExecStart=/a\n{settings}\n"));
            assert_eq!(service.hides_tun().as_deref(), expected, "{settings}");
        }
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let base = "[Service]\nExecStart=/a\n";
        for (setting, refused_with_preload) in [
            ("PrivateNetwork=yes", true),
            ("RootDirectory=/srv", true),
            ("Type=forking", false),
            ("RestrictNamespaces=yes", false),
            ("PrivateDevices=true", false),
        ] {
            let text = format!("{base}{setting}\n");
            assert!(lines(&text, With::Run, &[], false).is_err(), "{setting}");
            assert_eq!(lines(&text, With::Preload, &[], false).is_err(), refused_with_preload, "{setting}");
        }
        assert!(lines(&format!("{base}PrivateNetwork=no\n"), With::Run, &[], false).is_ok());
        assert!(service(base).check(With::Run, true).is_err());
        let notify = lines(&format!("{base}Type=notify\n"), With::Run, &[], false).expect("it is understood");
        assert_eq!(notify.last().map(String::as_str), Some("NotifyAccess=all"));
    }
}
