//! A peer more for a server.

use std::io::IsTerminal;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use polypath_tunnel::Network;
use polypath_tunnel::key::{PresharedKey, PrivateKey};
use serde::Serialize;

use super::super::control_socket::MISTAKE;
use super::super::{Failure, complain, print_line};
use super::control::{Question, TUNNELS};
use super::endpoints::{PORT, with_port};
use super::file::{Address, File, Interface, NAME, Peer, UplinksText, parse_address};
use super::make::{random32, to_text};
use super::qr_code::draw;
use super::secret_file::{Locked, write_new_secret};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// The server's file
    #[arg(value_name = "SERVER.toml")]
    file: PathBuf,
    /// What the peer is called in the server's file
    #[arg(long, value_name = "NAME")]
    label: Option<String>,
    /// What the peer sends through the tunnel: these networks [default: the tunnel's own]; 0.0.0.0/0 for everything
    #[arg(long, value_name = "NETWORK", value_delimiter = ',')]
    routes: Vec<String>,
    /// Make the file of a stock WireGuard, which has one path
    #[arg(long)]
    wireguard: bool,
    /// The peer asks these for names, with --wireguard
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', requires = "wireguard")]
    dns: Vec<IpAddr>,
    /// Write the peer's file there, and don't print it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the peer's file as a QR code, which phones scan [default: with --wireguard, on a terminal]
    #[arg(long)]
    qr: bool,
}

/// The peers alone, to be put behind what stands in a file.
#[derive(Serialize)]
struct More<'a> {
    peers: [&'a Peer; 1],
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let path = &arguments.file;
    // From reading to writing nobody else adds a peer: of two that read the same, one would be lost.
    let locked =
        Locked::open(path).map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?;
    let before = locked.text().to_owned();
    let server = File::parse(&before, path)?;
    // To a file that no tunnel takes, nobody is added.
    File::parse(&before, path)?.plan(path)?;
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
    if let Some(label) = &arguments.label {
        check_label(label, &server, path).map_err(|error| Failure::Input(format!("--label: {error}")))?;
    }
    let addresses = free_addresses(&server)
        .map_err(|error| Failure::Input(format!("{}, interface.addresses: {error}", path.display())))?;
    let new = NewPeer {
        key: PrivateKey::from_random(random32()),
        preshared: PresharedKey::from_random(random32()),
        routes: routes(arguments, &server)?,
        endpoints: {
            let port = server.interface.listen_port.unwrap_or(PORT);
            server.interface.endpoints.iter().map(|text| with_port(text, port)).collect()
        },
        addresses,
    };
    let host = |own: &Address| Network::host(own.address).to_string();
    let peer = Peer {
        name: arguments.label.clone(),
        public_key: new.key.public_key().to_string(),
        preshared_key: Some(new.preshared.to_secret_text()),
        endpoints: Vec::new(),
        allowed_ips: new.addresses.iter().map(host).collect(),
    };
    let text = if arguments.wireguard {
        new.wireguard_text(&server, &key, &arguments.dns)
    } else {
        new.text(&server, &key)?
    };
    // A server that knows a key too many does no harm; a peer whom it does not know is of no use. What people wrote stays as it is.
    let more = toml::to_string(&More { peers: [&peer] }).map_err(Failure::run)?;
    let after = format!("{}\n\n{more}", before.trim_end());
    if !File::parse(&after, path).is_ok_and(|file| file.peers.len() == server.peers.len() + 1) {
        return Err(Failure::Input(format!("{}, peers: expected each as [[peers]]", path.display())));
    }
    locked.replace(&after).map_err(|error| Failure::Run(format!("{}: {error}", path.display())))?;
    if let Err(failure) = show(arguments, &text) {
        // Nobody has the peer's key.
        if let Err(error) = take_back(path, (&before, &after), &more) {
            let key = &peer.public_key;
            complain(&format!("{}: the peer {key} can't be taken out again: {error}", path.display()));
        }
        return Err(failure);
    }
    let given: Vec<_> = new.addresses.iter().map(|own| own.address.to_string()).collect();
    complain(&format!(
        "added {} to {}; {}",
        given.join(" and "),
        path.display(),
        tell_running(arguments, &server)
    ));
    Ok(())
}

/// Takes a peer out again, and nothing that others have written since.
fn take_back(path: &Path, around: (&str, &str), more: &str) -> std::io::Result<()> {
    let locked = Locked::open(path)?;
    match without(locked.text(), around, more) {
        Some(text) => locked.replace(&text),
        None => Ok(()),
    }
}

/// The file without a peer that was put behind what stood there `before`. Nothing if it is gone.
fn without(text: &str, (before, after): (&str, &str), more: &str) -> Option<String> {
    if text == after {
        return Some(before.to_owned());
    }
    let (head, tail) = text.split_once(more)?;
    Some(format!("{}{tail}", head.strip_suffix('\n').unwrap_or(head)))
}

/// Whether a new peer can be called so: by its label people tell it from the others.
fn check_label(label: &str, server: &File, path: &Path) -> Result<(), LabelError> {
    if label.trim().is_empty() {
        return Err(LabelError::Empty);
    }
    let names = || server.peers.iter().filter_map(|peer| peer.name.as_deref());
    if names().any(|name| name == label) {
        return Err(LabelError::Taken(label.to_owned(), path.to_owned()));
    }
    Ok(())
}

/// Why a peer can't be called so.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum LabelError {
    #[error("is empty: expected what the peer is called, such as laptop")]
    Empty,
    #[error("a peer of {} is called {:?} already: expected another name", .1.display(), .0)]
    Taken(String, PathBuf),
}

/// What the peer sends through the tunnel.
fn routes(arguments: &Arguments, server: &File) -> Result<Vec<String>, Failure> {
    if arguments.routes.is_empty() {
        let own = server.interface.addresses.iter().filter_map(|text| parse_address(text));
        let networks = own.filter_map(|own| Network::new(own.address, own.prefix_bits));
        return Ok(networks.map(|network| network.to_string()).collect());
    }
    for text in &arguments.routes {
        text.parse::<Network>().map_err(|error| Failure::Input(format!("--routes: {error}")))?;
    }
    Ok(arguments.routes.clone())
}

/// Hands the peer's file over.
fn show(arguments: &Arguments, text: &str) -> Result<(), Failure> {
    let is_terminal = std::io::stdout().is_terminal();
    let has_code = arguments.qr || (arguments.wireguard && is_terminal);
    let code = has_code.then(|| draw(text, is_terminal)).transpose().map_err(Failure::Input)?;
    match &arguments.out {
        Some(out) => write_new_secret(out, text)?,
        None => print_line(text.trim_end())?,
    }
    code.map_or(Ok(()), |code| print_line(&code))
}

/// Has a tunnel that runs by this file take the peer. Returns what became of it.
fn tell_running(arguments: &Arguments, server: &File) -> String {
    let name = server.interface.name.as_deref().unwrap_or(NAME);
    let by_hand = || String::from("`polypath tunnel reload` has a running tunnel take it");
    let same_file = || {
        let running = TUNNELS.ask(name, Question::File.word()).ok()??;
        let [one, other] =
            [arguments.file.as_path(), running.as_ref()].map(|path| std::fs::canonicalize(path).ok());
        (one? == other?).then_some(())
    };
    if same_file().is_none() {
        return by_hand();
    }
    match TUNNELS.ask(name, Question::Reload.word()) {
        Ok(Some(answer)) => match answer.trim_end().strip_prefix(MISTAKE) {
            Some(mistake) => format!("{name} does not take it: {mistake}"),
            None => format!("{name} has taken it"),
        },
        _ => by_hand(),
    }
}

/// What a new peer has.
struct NewPeer {
    key: PrivateKey,
    preshared: PresharedKey,
    addresses: Vec<Address>,
    routes: Vec<String>,
    endpoints: Vec<String>,
}

impl NewPeer {
    fn own(&self) -> Vec<String> {
        self.addresses.iter().map(|own| format!("{}/{}", own.address, own.prefix_bits)).collect()
    }

    /// Its file.
    fn text(&self, server: &File, key: &PrivateKey) -> Result<String, Failure> {
        to_text(&File {
            interface: Interface {
                private_key: self.key.to_secret_text(),
                addresses: self.own(),
                name: None,
                listen_port: None,
                mtu: server.interface.mtu,
                endpoints: Vec::new(),
            },
            uplinks: UplinksText::default(),
            forward: None,
            peers: vec![Peer {
                name: None,
                public_key: key.public_key().to_string(),
                preshared_key: Some(self.preshared.to_secret_text()),
                endpoints: self.endpoints.clone(),
                allowed_ips: self.routes.clone(),
            }],
            rules: Vec::new(),
        })
    }

    /// Its file, for a stock WireGuard.
    fn wireguard_text(&self, server: &File, key: &PrivateKey, dns: &[IpAddr]) -> String {
        let dns: Vec<_> = dns.iter().map(ToString::to_string).collect();
        let dns = if dns.is_empty() { String::new() } else { format!("DNS = {}\n", dns.join(", ")) };
        format!(
            "[Interface]\nPrivateKey = {}\nAddress = {}\n{dns}MTU = {}\n\n[Peer]\nPublicKey = {}\nPresharedKey = {}\n\
             Endpoint = {}\nAllowedIPs = {}\nPersistentKeepalive = 25\n",
            self.key.to_secret_text(),
            self.own().join(", "),
            server.interface.mtu.unwrap_or(polypath_tunnel::EngineConfig::MTU_BYTES as u32),
            key.public_key(),
            self.preshared.to_secret_text(),
            self.endpoints[0],
            self.routes.join(", "),
        )
    }
}

/// Of each of the server's networks the first address that nobody has.
fn free_addresses(server: &File) -> Result<Vec<Address>, String> {
    let taken: Vec<Network> =
        server.peers.iter().flat_map(|peer| &peer.allowed_ips).filter_map(|text| text.parse().ok()).collect();
    let mut free = Vec::new();
    for text in &server.interface.addresses {
        let own = parse_address(text).ok_or_else(|| format!("{text:?} is no address with a prefix"))?;
        let address = free_address(own, &taken).ok_or_else(|| {
            format!("no address of {text} is free; remove a peer, or give the tunnel a larger network")
        })?;
        free.push(Address { address, prefix_bits: own.prefix_bits });
    }
    if free.is_empty() { Err("none; expected one like 10.99.0.1/24".into()) } else { Ok(free) }
}

fn free_address(own: Address, taken: &[Network]) -> Option<IpAddr> {
    let network = Network::new(own.address, own.prefix_bits)?;
    // A network that leads to a peer as a whole, such as all there is, has no one's address in particular.
    let taken = || taken.iter().filter(|net| net.prefix_bits() > own.prefix_bits);
    let is_free = |address: &IpAddr| {
        *address != own.address && !is_last(&network, *address) && !taken().any(|net| net.contains(*address))
    };
    (1..65_536_u32)
        .map(|offset| plus(network.address(), offset))
        .take_while(|address| network.contains(*address))
        .find(is_free)
}

fn plus(address: IpAddr, offset: u32) -> IpAddr {
    match address {
        IpAddr::V4(address) => IpAddr::V4((u32::from(address).wrapping_add(offset)).into()),
        IpAddr::V6(address) => IpAddr::V6((u128::from(address).wrapping_add(offset.into())).into()),
    }
}

/// The broadcast address of an IPv4 network.
fn is_last(network: &Network, address: IpAddr) -> bool {
    address.is_ipv4() && network.prefix_bits() < 31 && !network.contains(plus(address, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(own: &str, taken: &[&str]) -> Option<String> {
        let taken: Vec<Network> = taken.iter().map(|text| text.parse().unwrap()).collect();
        free_address(parse_address(own).unwrap(), &taken).map(|free| free.to_string())
    }

    #[test]
    fn what_others_have_added_stays_when_a_peer_is_taken_back() {
        let (before, more) = ("[interface]\n\n\n", "[[peers]]\npublic-key = \"mine\"\n");
        let after = format!("[interface]\n\n{more}");
        let without = |text: &str| without(text, (before, &after), more);
        assert_eq!(without(&after).as_deref(), Some(before));
        let theirs = "[[peers]]\npublic-key = \"theirs\"\n";
        assert_eq!(without(&format!("{after}\n{theirs}")), Some(format!("[interface]\n\n{theirs}")));
        assert_eq!(without(&format!("[interface]\n\n{theirs}")), None);
    }

    #[test]
    fn addresses_are_given_out_once() {
        assert_eq!(free("10.99.0.1/24", &[]).as_deref(), Some("10.99.0.2"));
        assert_eq!(free("10.99.0.1/24", &["10.99.0.2/32"]).as_deref(), Some("10.99.0.3"));
        assert_eq!(free("fd77::1/64", &["fd77::2/128"]).as_deref(), Some("fd77::3"));
        // One that was given back is given again.
        assert_eq!(free("10.99.0.1/24", &["10.99.0.2/32", "10.99.0.4/32"]).as_deref(), Some("10.99.0.3"));
        assert_eq!(free("10.99.0.1/24", &["10.99.0.0/30"]).as_deref(), Some("10.99.0.4"));
        assert_eq!(free("10.99.0.1/24", &["0.0.0.0/0"]).as_deref(), Some("10.99.0.2"));
        assert_eq!(free("10.99.0.5/30", &["10.99.0.6/32"]), None, "the last is the broadcast address");
    }
}
