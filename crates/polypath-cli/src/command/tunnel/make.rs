//! Keys and files of new ends.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use polypath_tunnel::driver::system_random;
use polypath_tunnel::key::{PresharedKey, PrivateKey};

use super::super::{Failure, complain, print_line};
use super::file::{File, Interface, PORT, Peer, Uplinks, parse_address, with_port};

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

#[derive(Args, Debug)]
pub(super) struct AddPeerArguments {
    /// The server's file
    #[arg(value_name = "SERVER.toml")]
    file: PathBuf,
    /// What the peer is called in the server's file
    #[arg(long, value_name = "NAME")]
    label: Option<String>,
    /// What the peer sends through the tunnel: these networks [default: the tunnel's own]; 0.0.0.0/0 for everything
    #[arg(long, value_name = "NETWORK", value_delimiter = ',')]
    routes: Vec<String>,
    /// Print the file of a stock WireGuard, which has one path
    #[arg(long)]
    wireguard: bool,
    /// Write the peer's file there, and print nothing
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn random32() -> [u8; 32] {
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
        uplinks: Uplinks::default(),
        peers: Vec::new(),
        rules: Vec::new(),
    };
    write_secret(path, &to_text(&file)?, true)?;
    complain(&format!("wrote {}, whose public key is {}", path.display(), key.public_key()));
    Ok(())
}

fn to_text(file: &File) -> Result<String, Failure> {
    toml::to_string(file).map_err(Failure::run)
}

/// Only its owner may read it. What is there is replaced whole, or not at all.
fn write_secret(path: &Path, text: &str, is_new: bool) -> Result<(), Failure> {
    let said = |error: std::io::Error| Failure::Run(format!("{}: {error}", path.display()));
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    if is_new {
        let mut file = options.create_new(true).open(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => Failure::Input(format!(
                "{} is there already: expected the name of a new file",
                path.display()
            )),
            _ => said(error),
        })?;
        return file.write_all(text.as_bytes()).map_err(said);
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let mut file = options.create(true).truncate(true).open(&beside).map_err(said)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(said)?;
    std::fs::rename(&beside, path).map_err(said)
}

pub(super) fn add_peer(arguments: &AddPeerArguments) -> Result<(), Failure> {
    let path = &arguments.file;
    let mut server = File::read(path)?;
    let key: PrivateKey = server
        .interface
        .private_key
        .parse()
        .map_err(|error| Failure::Input(format!("{}, interface.private-key: {error}", path.display())))?;
    if server.interface.endpoints.is_empty() {
        return Err(Failure::Input(format!(
            "{}, interface.endpoints: none. The peer has to know where to call: expected endpoints = [\"HOST\"]",
            path.display()
        )));
    }
    let address = free_address(&server)
        .ok_or_else(|| Failure::Input(format!("{}: its networks have no free address", path.display())))?;
    let own = server.interface.addresses.first().and_then(|text| parse_address(text));
    let prefix_bits = own.map_or(32, |own| own.prefix_bits);
    let peer_key = PrivateKey::from_random(random32());
    let preshared = PresharedKey::from_random(random32());
    let port = server.interface.listen_port.unwrap_or(PORT);
    let endpoints: Vec<_> = server.interface.endpoints.iter().map(|text| with_port(text, port)).collect();
    let routes = if arguments.routes.is_empty() {
        let own = own.and_then(|own| polypath_tunnel::Network::new(own.address, own.prefix_bits));
        own.iter().map(ToString::to_string).collect()
    } else {
        arguments.routes.clone()
    };
    for text in &routes {
        text.parse::<polypath_tunnel::Network>()
            .map_err(|error| Failure::Input(format!("--routes: {error}")))?;
    }
    let host_bits = if address.is_ipv4() { 32 } else { 128 };
    server.peers.push(Peer {
        name: arguments.label.clone(),
        public_key: peer_key.public_key().to_string(),
        preshared_key: Some(preshared.to_secret_text()),
        endpoints: Vec::new(),
        allowed_ips: vec![format!("{address}/{host_bits}")],
    });
    let text = if arguments.wireguard {
        format!(
            "[Interface]\nPrivateKey = {}\nAddress = {address}/{prefix_bits}\nMTU = 1400\n\n[Peer]\nPublicKey = {}\nPresharedKey = {}\n\
             Endpoint = {}\nAllowedIPs = {}\nPersistentKeepalive = 25\n",
            peer_key.to_secret_text(),
            key.public_key(),
            preshared.to_secret_text(),
            endpoints[0],
            routes.join(", "),
        )
    } else {
        to_text(&File {
            interface: Interface {
                private_key: peer_key.to_secret_text(),
                addresses: vec![format!("{address}/{prefix_bits}")],
                name: None,
                listen_port: None,
                mtu: server.interface.mtu,
                endpoints: Vec::new(),
            },
            uplinks: Uplinks::default(),
            peers: vec![Peer {
                name: None,
                public_key: key.public_key().to_string(),
                preshared_key: Some(preshared.to_secret_text()),
                endpoints,
                allowed_ips: routes,
            }],
            rules: Vec::new(),
        })?
    };
    // A server that knows a key too many does no harm; a peer whom it does not know is of no use.
    write_secret(path, &to_text(&server)?, false)?;
    match &arguments.out {
        Some(out) => write_secret(out, &text, true)?,
        None => print_line(text.trim_end())?,
    }
    complain(&format!(
        "added {address} to {}; a running tunnel takes it when it begins anew",
        path.display()
    ));
    Ok(())
}

/// The next address of the server's first network that nobody has.
fn free_address(server: &File) -> Option<IpAddr> {
    let own = parse_address(server.interface.addresses.first()?)?;
    let network = polypath_tunnel::Network::new(own.address, own.prefix_bits)?;
    let taken: Vec<polypath_tunnel::Network> =
        server.peers.iter().flat_map(|peer| &peer.allowed_ips).filter_map(|text| text.parse().ok()).collect();
    let is_free = |address: &IpAddr| {
        network.contains(*address)
            && *address != own.address
            && !taken.iter().any(|net| net.contains(*address))
    };
    (1..65_536_u32)
        .map(|offset| plus(network.address(), offset))
        .take_while(|address| network.contains(*address))
        .find(is_free)
        .filter(|address| !is_last(&network, *address))
}

fn plus(address: IpAddr, offset: u32) -> IpAddr {
    match address {
        IpAddr::V4(address) => IpAddr::V4((u32::from(address).wrapping_add(offset)).into()),
        IpAddr::V6(address) => IpAddr::V6((u128::from(address).wrapping_add(offset.into())).into()),
    }
}

/// The broadcast address of an IPv4 network.
fn is_last(network: &polypath_tunnel::Network, address: IpAddr) -> bool {
    address.is_ipv4() && network.prefix_bits() < 31 && !network.contains(plus(address, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(address: &str, peers: &[&str]) -> File {
        let peer = |text: &&str| Peer {
            name: None,
            public_key: String::new(),
            preshared_key: None,
            endpoints: Vec::new(),
            allowed_ips: vec![(*text).to_owned()],
        };
        File {
            interface: Interface {
                private_key: String::new(),
                addresses: vec![address.to_owned()],
                name: None,
                listen_port: None,
                mtu: None,
                endpoints: Vec::new(),
            },
            uplinks: Uplinks::default(),
            peers: peers.iter().map(peer).collect(),
            rules: Vec::new(),
        }
    }

    #[test]
    fn addresses_are_given_out_once() {
        let free =
            |address, peers: &[&str]| free_address(&server(address, peers)).map(|free| free.to_string());
        assert_eq!(free("10.99.0.1/24", &[]).as_deref(), Some("10.99.0.2"));
        assert_eq!(free("10.99.0.1/24", &["10.99.0.2/32"]).as_deref(), Some("10.99.0.3"));
        assert_eq!(free("10.99.0.5/30", &["10.99.0.6/32"]), None, "the last is the broadcast address");
        assert_eq!(free("fd77::1/64", &["fd77::2/128"]).as_deref(), Some("fd77::3"));
    }
}
