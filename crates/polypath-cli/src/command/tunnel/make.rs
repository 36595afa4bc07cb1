//! Keys, and files of new ends.

use std::path::PathBuf;

use clap::Args;
use polypath_tunnel::driver::system_random;
use polypath_tunnel::key::PrivateKey;

use super::super::{Failure, complain, print_line};
use super::endpoints::{PORT, check_endpoint};
use super::file::{File, Interface, UplinksText, parse_address};
use super::secret_file::write_new_secret;

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
    for text in &arguments.endpoint {
        check_endpoint(text).map_err(|error| Failure::Input(format!("--endpoint: {error}")))?;
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
