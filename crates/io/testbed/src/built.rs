use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// For tests of what programs load: the folder of the command and of the libraries for C and for preloading, which
/// `cargo test` does not build by itself.
///
/// # Panics
///
/// If they can't be built.
pub fn built() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let mut build = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // The packages and features of `cargo test --workspace`, for which a test is named: others are built again.
        let words = "build --quiet --profile test --workspace --lib --bins --test programs";
        build.args(words.split(' '));
        assert!(
            build.status().is_ok_and(|status| status.success()),
            "the libraries are not built: {build:?}"
        );
        // target/PROFILE/deps/TEST-HASH
        let test = env::current_exe().expect("the path of this test");
        test.ancestors().nth(2).expect("a target directory").to_path_buf()
    })
}
