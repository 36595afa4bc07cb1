//! What is on file.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use polypath_testbed::is_root_or_skip;
use rustix::fs::{FlockOperation, flock};

use super::super::*;
use super::Host;

/// A claim of slot 0 by another thread, as far as it comes: to its end, or to where it waits for the directory's lock.
fn claim_as_far_as_it_comes<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    directory: &'scope Path,
) -> std::thread::ScopedJoinHandle<'scope, io::Result<Option<Record>>> {
    let claim = scope.spawn(|| Record::claim(directory, 0, &Netlink::new()?));
    let lock = directory.join("lock");
    let is_lock = |entry: io::Result<fs::DirEntry>| {
        fs::read_link(entry.expect("an entry").path()).is_ok_and(|place| place == lock)
    };
    // Whoever waits has it open, as has whoever is waited for.
    let waits = || {
        fs::read_dir("/proc/self/fd")
            .expect("our files")
            .filter_map(|entry| is_lock(entry).then_some(()))
            .count()
            > 1
    };
    while !claim.is_finished() && !waits() {
        std::thread::yield_now();
    }
    claim
}

#[test]
fn a_start_waits_for_another_ones_record() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = Record::claim(directory.path(), 0, &Netlink::new().unwrap()).unwrap().expect("the slot");
    let found = fs::read_dir(directory.path()).unwrap().next().expect("its record").unwrap().path();
    assert!(found.extension().is_some_and(|extension| extension == "json"), "{found:?}");
    let text = fs::read(&found).unwrap();
    // As if it had made the file a moment ago, and written nothing yet.
    let lock = record::lock_directory(directory.path()).unwrap();
    fs::write(&found, "").unwrap();
    std::thread::scope(|scope| {
        let second = claim_as_far_as_it_comes(scope, directory.path());
        fs::write(&found, &text).unwrap();
        drop(lock);
        assert!(second.join().unwrap().expect("no error").is_none(), "the slot is the first one's");
    });
    assert_eq!(fs::read(&found).unwrap(), text);
    drop(first);
    let third = Record::claim(directory.path(), 0, &Netlink::new().unwrap()).unwrap();
    assert!(third.is_some(), "the slot is free again");
}

#[test]
fn what_is_no_record_does_not_keep_a_start_from_its_slot() {
    for bytes in [&b""[..], b"{\"slot\":0", b"\xff\xfe\0"] {
        let directory = tempfile::tempdir().expect("a directory");
        let first = Record::claim(directory.path(), 0, &Netlink::new().unwrap()).unwrap().expect("the slot");
        let place = fs::read_dir(directory.path()).unwrap().next().expect("its record").unwrap().path();
        drop(first);
        fs::write(&place, bytes).unwrap();
        fs::set_permissions(&place, PermissionsExt::from_mode(0o600)).unwrap();
        let second = Record::claim(directory.path(), 0, &Netlink::new().unwrap()).unwrap();
        assert!(second.is_some(), "{bytes:?}");
    }
}

#[test]
fn a_directory_that_is_refused_is_no_lack_of_rights_in_the_network() {
    let denied = || io::Error::from_raw_os_error(libc::EACCES);
    let error = record::refused(Path::new("/run/polypath"), denied());
    assert_eq!(polypath_system::errno_of(&error), Some(libc::EACCES));
    let said = crate::SetupError::from(error).to_string();
    assert!(said.contains("/run/polypath: ") && said.contains("POLYPATH_RUNTIME_DIR"), "{said}");
    assert!(matches!(crate::SetupError::from(denied()), crate::SetupError::Permission));
}

#[test]
fn nobody_else_can_keep_a_start_waiting() {
    let folder = tempfile::tempdir().expect("a directory");
    let directory = folder.path().join("polypath");
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    let record = Record::claim(&directory, 0, &Netlink::new().unwrap()).unwrap().expect("the slot");
    assert_eq!(mode(&directory), 0o700);
    drop(record);
    // An earlier version may have made it so that others can open the directory, and lock that.
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
    let stranger = File::open(&directory).unwrap();
    flock(&stranger, FlockOperation::NonBlockingLockExclusive).unwrap();
    let lock = record::lock_within(&directory, Duration::ZERO).expect("the lock");
    assert_eq!(mode(&directory.join("lock")), 0o600);
    // Its own processes wait for each other, and not for ever.
    let error = record::lock_within(&directory, Duration::from_millis(30)).unwrap_err();
    assert!(
        error.kind() == io::ErrorKind::TimedOut && error.to_string().contains("polypath/lock: "),
        "{error}"
    );
    drop(lock);
    drop(record::lock_within(&directory, Duration::ZERO).expect("the lock"));
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn a_namespace_needs_no_loopback_to_be_told_from_others() {
    if !is_root_or_skip("the number of a namespace") {
        return;
    }
    let fresh = polypath_system::Namespace::create().expect("a namespace");
    for without in [&["link", "set", "lo", "down"][..], &["address", "flush", "dev", "lo"]] {
        let changed = fresh.run(|| Command::new("ip").args(without).status());
        assert!(changed.expect("enters").expect("runs").success());
    }
    let bound = fresh.run(|| std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))).expect("enters");
    assert_eq!(bound.expect_err("no address").kind(), io::ErrorKind::AddrNotAvailable);
    let number = fresh.run(record::namespace).unwrap().expect("its number");
    assert_ne!(number, record::namespace().expect("ours"));
}

#[test]
fn a_record_that_is_no_file_is_refused_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let namespace = record::namespace().unwrap();
    let path = directory.path().join(format!("setup-{namespace}-0.json"));
    let made = std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&path).status();
    assert!(made.expect("mkfifo").success());
    let (tell, told) = std::sync::mpsc::channel();
    let place = directory.path().to_path_buf();
    std::thread::spawn(move || tell.send(Record::claim(&place, 0, &Netlink::new().unwrap()).map(|_| ())));
    let claimed = told.recv_timeout(Duration::from_secs(20)).expect("it does not wait for a writer");
    assert!(claimed.unwrap_err().to_string().contains("is no regular file"));
    let read = record::left(directory.path());
    assert!(read.unwrap_err().to_string().contains("is no regular file"));
}

#[test]
fn what_a_crash_left_goes_at_the_next_start() {
    if !is_root_or_skip("leftovers of a crash") {
        return;
    }
    let host = Host::new();
    let before = host.snapshot();
    let tun = host.tun();
    let setup = host.apply(&tun, SetupOptions::default()).expect("set-up");
    // As if the process had died: nothing is undone, and its record names a process that is not there.
    std::mem::forget(setup);
    let left = || host.testbed.client.run(|| record::left(host.directory.path())).unwrap().expect("records");
    assert_eq!(left(), Vec::<u32>::new(), "it lives");
    host.pretend_death();
    assert_eq!(left(), [4_194_305]);
    // Root sees it, too, where a service with a user of its own has left it.
    let found = || {
        let own = tempfile::tempdir().expect("a directory");
        let directories = [own.path().to_path_buf(), host.directory.path().to_path_buf()];
        host.testbed.client.run(|| guardian::left_in(own.path(), &directories)).unwrap().expect("records")
    };
    let give = |user: u32| {
        let entries = fs::read_dir(host.directory.path()).unwrap().flatten().map(|entry| entry.path());
        for path in entries.chain([host.directory.path().to_path_buf()]) {
            std::os::unix::fs::chown(path, Some(user), None).expect("root may");
        }
    };
    for user in [61_184, 0] {
        give(user);
        let [left] = &found()[..] else { panic!("one directory: {:?}", found()) };
        assert_eq!((left.is_others, &left.pids[..]), (true, &[4_194_305][..]));
    }
    drop(tun);
    assert_ne!(host.snapshot(), before);
    let tun = host.tun();
    let next = host.apply(&tun, SetupOptions::default()).expect("the next start");
    assert_eq!(next.slot(), 0);
    next.remove().unwrap();
    drop(tun);
    host.assert_becomes(&before);
}

#[test]
fn one_start_removes_what_several_have_left() {
    if !is_root_or_skip("leftovers of several crashes") {
        return;
    }
    let host = Host::new();
    let before = host.snapshot();
    let tuns = [host.tun(), host.tun(), host.tun()];
    for tun in &tuns {
        std::mem::forget(host.apply(tun, SetupOptions::default()).expect("set-up"));
    }
    host.pretend_death();
    drop(tuns);
    assert!(host.snapshot().contains("table inet polypath2"), "{}", host.snapshot());
    let tun = host.tun();
    host.apply(&tun, SetupOptions::default()).expect("the next start").remove().unwrap();
    drop(tun);
    host.assert_becomes(&before);
    assert_eq!(fs::read_dir(host.directory.path()).unwrap().count(), 0);
}

#[test]
fn a_guardian_takes_down_what_its_parent_has_left() {
    if !is_root_or_skip("what a guardian does") {
        return;
    }
    let host = Host::new();
    let before = host.snapshot();
    let tun = host.tun();
    std::mem::forget(host.apply(&tun, SetupOptions::default()).expect("set-up"));
    drop(tun);
    let clear = || host.testbed.client.run(|| guardian::clear_in(host.directory.path())).unwrap();
    let during = host.snapshot();
    clear().expect("nothing to do");
    assert_eq!(host.snapshot(), during, "its owner lives");
    host.pretend_death();
    clear().expect("it is taken down");
    host.assert_becomes(&before);
    assert_eq!(fs::read_dir(host.directory.path()).unwrap().count(), 0);
}

#[test]
fn a_record_that_others_may_write_or_that_leads_elsewhere_is_refused() {
    if !is_root_or_skip("records") {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let host = Host::new();
    let tun = host.tun();
    let mode = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    let error = || host.apply(&tun, SetupOptions::default()).unwrap_err().to_string();
    mode(host.directory.path(), 0o777);
    assert!(
        error().contains("has mode 0777; expected user 0, and that nobody else may write"),
        "{}",
        error()
    );
    mode(host.directory.path(), 0o755);
    let namespace = host.testbed.client.run(record::namespace).unwrap().unwrap();
    let path = host.directory.path().join(format!("setup-{namespace}-0.json"));
    let record = |name: &str| {
        format!(
            r#"{{"pid": 4194305, "started": 1, "slot": 0, "actions":
                [{{"set_variable": {{"name": "{name}", "value": "1", "before": "0"}}}}]}}"#
        )
    };
    std::fs::write(&path, record("net/ipv4/ip_forward")).unwrap();
    mode(&path, 0o666);
    assert!(error().contains("has mode 0666"), "{}", error());
    mode(&path, 0o600);
    for name in
        ["net/ipv6/conf/../../../../tmp/accept_ra", "kernel/core_pattern", "net/ipv6/conf/../accept_ra"]
    {
        std::fs::write(&path, record(name)).unwrap();
        assert!(error().contains("is nothing that set-up does"), "{}", error());
    }
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/proc/self/mounts", &path).unwrap();
    assert!(error().contains("setup-"), "{}", error());
    std::fs::remove_file(&path).unwrap();
    host.apply(&tun, SetupOptions::default()).expect("set-up").remove().unwrap();
}

#[test]
fn a_start_in_another_namespace_keeps_what_a_crash_left_here_on_file() {
    if !is_root_or_skip("leftovers in another namespace") {
        return;
    }
    let host = Host::new();
    let before = host.snapshot();
    let tun = host.tun();
    std::mem::forget(host.apply(&tun, SetupOptions::default()).expect("set-up"));
    host.pretend_death();
    drop(tun);
    let elsewhere = Host { directory: host.directory, ..Host::new() };
    let tun = elsewhere.tun();
    elsewhere.apply(&tun, SetupOptions::default()).expect("elsewhere").remove().unwrap();
    let host = Host { testbed: host.testbed, directory: elsewhere.directory };
    let tun = host.tun();
    host.apply(&tun, SetupOptions::default()).expect("the next start").remove().unwrap();
    drop(tun);
    host.assert_becomes(&before);
}
