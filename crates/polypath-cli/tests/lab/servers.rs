//! Real servers on the kernel's Multipath TCP.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Lab, Running};

/// A server program on the kernel's Multipath TCP.
pub(crate) fn on_mptcp(program: &str) -> Command {
    let mut command = Command::new("mptcpize");
    command.args(["run", program]);
    command
}

/// nginx with the lab's folder at port 80.
pub(crate) fn nginx(lab: &Lab) -> Running {
    let folder = lab.folder().display();
    let configuration = format!(
        "daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.err;
         events {{ worker_connections 1024; }}
         http {{ access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
           uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
           server {{ listen 80; root {folder}; }} }}"
    );
    let file = lab.folder().join("nginx.conf");
    fs::write(&file, configuration).unwrap();
    lab.serve(on_mptcp("nginx").arg("-c").arg(file), 80)
}

/// sshd at port 2222 for root, and the file of the key that opens it.
pub(crate) fn sshd(lab: &Lab) -> (Running, String) {
    let key = lab.folder().join("key").display().to_string();
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &key]).status();
    assert!(made.unwrap().success());
    let folder = lab.folder().display();
    // Its folder for giving up rights is not there unless it is installed as a service; this one is only its own.
    let daemon = format!(
        "mount -t tmpfs tmpfs /run && mkdir /run/sshd && exec mptcpize run $(command -v sshd) -D -e -f /dev/null \
         -p 2222 -o HostKey={key} -o AuthorizedKeysFile={key}.pub -o StrictModes=no \
         -o UsePAM=no -o PidFile={folder}/sshd.pid -o PermitRootLogin=prohibit-password"
    );
    let mut command = Command::new("unshare");
    let server = lab.serve(command.args(["-m", "sh", "-c", &daemon]), 2222);
    (server, key)
}

pub(crate) fn same_files(a: &Path, b: &Path) {
    let (a_bytes, b_bytes) = (fs::read(a).unwrap(), fs::read(b).unwrap());
    assert!(a_bytes == b_bytes, "{} and {} differ", a.display(), b.display());
}
