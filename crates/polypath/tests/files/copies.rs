//! Files that go both ways.

use std::fs;

use crate::site::{Site, content, same};

#[test]
fn copies_go_both_ways_with_all_that_is_in_them() {
    let site = Site::new(&["--writable", "--quiet"]);
    site.succeeds(&["cp", "-q", &site.url("/big.bin"), "."]);
    same(&site.out("big.bin"), &site.site("big.bin"));
    site.succeeds(&["cp", "-r", &site.url("/sub/"), "tree"]);
    same(&site.out("tree/deep/a b%.txt"), &site.site("sub/deep/a b%.txt"));
    site.succeeds(&["cp", "-r", "tree", &site.url("/copy")]);
    same(&site.site("copy/deep/a b%.txt"), &site.out("tree/deep/a b%.txt"));
    site.succeeds(&["cp", "-r", "tree", "big.bin", &site.url("/sub")]);
    same(&site.site("sub/tree/index.html"), &site.out("tree/index.html"));
    same(&site.site("sub/big.bin"), &site.out("big.bin"));
    site.succeeds(&["cp", "big.bin", &site.url("/new/name.bin")]);
    same(&site.site("new/name.bin"), &site.out("big.bin"));
    // What broke off goes on, if it is the beginning of this file, and begins anew otherwise.
    for (there, sent) in [(content(1_000_000), "2000000 bytes"), (vec![0; 1_000_000], "3000000 bytes")] {
        fs::write(site.site(".again.part"), &there).expect("a file");
        let output = site.succeeds(&["cp", "-C", "big.bin", &site.url("/again")]);
        let said = String::from_utf8_lossy(&output.stderr).to_string();
        assert!(said.contains(sent), "{said}");
        same(&site.site("again"), &site.out("big.bin"));
        assert!(!site.site(".again.part").exists());
        fs::write(site.out(".down.part"), &there).expect("a file");
        let output = site.run(&["cp", "-C", &site.url("/big.bin"), "down"]);
        // A part of something else is found out by its sum, and gone the next time.
        assert_eq!(output.status.success(), there == content(1_000_000));
        site.succeeds(&["cp", "-C", &site.url("/big.bin"), "down"]);
        same(&site.out("down"), &site.site("big.bin"));
    }
    site.fails(&["cp", "big.bin", "elsewhere"], 2, "all places are on this machine");
    site.fails(&["cp", "big.bin", "10.0.0.1:up.bin"], 2, "expected polypath://10.0.0.1/up.bin");
    site.fails(&["cp", &site.url("/a"), &site.url("/b")], 2, "all places are elsewhere");
    site.fails(&["cp", "tree", &site.url("/")], 2, "expected --recursive");
    site.fails(&["cp", &site.url("/sub/"), "."], 2, "expected --recursive");
    // What another upload has the lock of is refused in the server's own words. A file of which much is still to come may break off before
    // they are read.
    let held = fs::File::create(site.site(".held.part")).expect("a file");
    held.lock().expect("nobody has it");
    site.fails(&["cp", "tree/index.html", &site.url("/held")], 1, "another upload still holds this file");
    site.fails(&["cp", "nosuch", &site.url("/")], 2, "can't be read");
    site.fails(&["cp", &site.url("/nosuch"), "."], 1, "404 Not Found");
}
