//! Keys, and files of new ends.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use polypath_tunnel::driver::system_random;
use polypath_tunnel::key::PrivateKey;

use super::super::{Failure, complain, print_line};
use super::endpoints::PORT;
use super::file::{File, Interface, UplinksText, parse_address};

#[derive(Args, Debug)]
pub(super) struct KeygenArguments {
    /// Where to write the file
    #[arg(value_name = "FILE.toml")]
    file: Option<PathBuf>,
    /// Where peers reach this end, each maybe with a port; may be repeated
    #[arg(long, value_name = "HOST[:PORT]", requires = "file")]
    endpoint: Vec<String>,
    /// The address inside the tunnel
    #[arg(long, value_name = "ADDRESS/BITS", default_value = "10.99.0.1/24", requires = "file")]
    address: String,
}

pub(super) fn random32() -> [u8; 32] {
    let mut bytes = [0; 32];
    system_random()(&mut bytes);
    bytes
}

pub(super) fn keygen(arguments: &KeygenArguments) -> Result<(), Failure> {
    let key = PrivateKey::from_random(random32());
    let Some(path) = &arguments.file else {
        print_line(&format!("private-key = \"{}\"", key.to_secret_text()))?;
        return print_line(&format!("public-key = \"{}\"", key.public_key()));
    };
    if parse_address(&arguments.address).is_none() {
        return Err(Failure::Input(format!(
            "--address: {:?}: expected one like 10.99.0.1/24",
            arguments.address
        )));
    }
    let file = File {
        interface: Interface {
            private_key: key.to_secret_text(),
            addresses: vec![arguments.address.clone()],
            name: None,
            listen_port: Some(PORT),
            mtu: None,
            endpoints: arguments.endpoint.clone(),
        },
        uplinks: UplinksText::default(),
        forward: None,
        peers: Vec::new(),
        rules: Vec::new(),
    };
    write_new_secret(path, &to_text(&file)?)?;
    complain(&format!("wrote {}, whose public key is {}", path.display(), key.public_key()));
    Ok(())
}

pub(super) fn to_text(file: &File) -> Result<String, Failure> {
    toml::to_string(file).map_err(Failure::run)
}

/// A new file that only its owner may read.
pub(super) fn write_new_secret(path: &Path, text: &str) -> Result<(), Failure> {
    let said = |error: std::io::Error| Failure::Run(format!("{}: {error}", path.display()));
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path).map_err(|error| {
        let is_there = error.kind() == std::io::ErrorKind::AlreadyExists;
        let expected = "is there already: expected the name of a new file";
        if is_there { Failure::Input(format!("{} {expected}", path.display())) } else { said(error) }
    })?;
    file.write_all(text.as_bytes()).map_err(said)
}

/// What is there is replaced whole, or not at all.
pub(super) fn replace_secret(path: &Path, text: &str) -> Result<(), Failure> {
    let said = |error: std::io::Error| Failure::Run(format!("{}: {error}", path.display()));
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside);
    let mut file = file.map_err(said)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(said)?;
    std::fs::rename(&beside, path).map_err(said)
}
