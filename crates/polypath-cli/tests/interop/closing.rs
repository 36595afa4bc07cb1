//! How connections end, one half long before the other, and who asks for checksums.

use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use polypath_mptcp::ConnectionConfig;
use polypath_stack::stack::{StackStream, default_connection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Longer than any timer of a live connection but its keep-alives.
const LONG: Duration = Duration::from_secs(3);

/// Both ends of a connection that has so many subflows, and has carried so many bytes each way.
async fn begun(lab: &Lab, subflows: usize, bytes: u64) -> (StackStream, TcpStream) {
    let (mut ours, kernel) = lab.connect().await;
    lab.subflows(&ours, subflows).await;
    exchange(&mut ours, &kernel, bytes, bytes).await;
    (ours, kernel)
}

#[test]
fn one_end_alone_asks_for_checksums() {
    in_cells("checksums of one end", Cell::without_checksum(), async |cell| {
        for is_ours in [true, false] {
            let connection = ConnectionConfig { checksum: is_ours, ..default_connection() };
            let mut lab = cell.lab_with(Choices { connection, ..cell.choices() });
            lab.kernel_variable("net/mptcp/checksum_enabled", if is_ours { "0" } else { "1" });
            if cell.ours == Side::Server {
                lab.kernel_endpoint(1, cell.is_v6, "subflow");
            }
            let (ours, kernel) = begun(&lab, if cell.ours == Side::Client { 2 } else { 3 }, 8 * MIB).await;
            let info = Lab::info(&ours);
            assert!(info.mptcp && info.checksum, "either end's wish counts (RFC 8684 §3.1)");
            lab.assert_clean();
            close(&mut lab, ours, kernel).await;
        }
    });
}

#[test]
fn the_kernel_writes_long_after_our_half_has_ended() {
    in_cells_at_once("the kernel writes late", Cell::all(), async |cell| {
        let mut lab = cell.lab();
        let (mut ours, kernel) = begun(&lab, 2, MIB).await;
        ours.shutdown().await.expect("we end our half");
        let end = kernel_reads_end(&kernel);
        joined(end).await.expect("the kernel sees the end at once");
        tokio::time::sleep(LONG).await;
        let sending = kernel_sends(&kernel, 3, 8 * MIB);
        receive(&mut ours, 3, 8 * MIB).await.expect("we receive on");
        joined(sending).await.expect("the kernel sends");
        lab.assert_clean();
        close(&mut lab, ours, kernel).await;
        lab.event("CLOSED", |event| *event == Event::Closed(CloseReason::Finished)).await;
    });
}

#[test]
fn we_write_long_after_the_kernels_half_has_ended() {
    in_cells_at_once("we write late", Cell::all(), async |cell| {
        let mut lab = cell.lab();
        let (mut ours, kernel) = begun(&lab, 2, MIB).await;
        kernel.shutdown(Shutdown::Write).expect("ends its half");
        assert_eq!(ours.read(&mut [0; 8]).await.expect("the end"), 0);
        tokio::time::sleep(LONG).await;
        let receiving = kernel_receives(&kernel, 4, 8 * MIB);
        send(&mut ours, 4, 8 * MIB).await.expect("we send on");
        joined(receiving).await.expect("the kernel receives");
        lab.assert_clean();
        close(&mut lab, ours, kernel).await;
        lab.event("CLOSED", |event| *event == Event::Closed(CloseReason::Finished)).await;
    });
}

#[test]
fn both_halves_end_behind_data_at_the_same_time() {
    in_cells("both halves at once", Cell::all(), async |cell| {
        let mut lab = cell.lab();
        let (ours, kernel) = lab.connect().await;
        let (mut read, mut write) = tokio::io::split(ours);
        let receiving = kernel_receives(&kernel, 5, 4 * MIB);
        let from_kernel = kernel.try_clone().expect("a descriptor");
        let sending = std::thread::spawn(move || {
            joined_now(kernel_sends(&from_kernel, 6, 4 * MIB))?;
            from_kernel.shutdown(Shutdown::Write)
        });
        let ending = async {
            send(&mut write, 5, 4 * MIB).await?;
            write.shutdown().await
        };
        let (ended, received) = tokio::join!(ending, receive(&mut read, 6, 4 * MIB));
        ended.expect("we send and end");
        received.expect("we receive what the kernel sent");
        assert_eq!(read.read(&mut [0; 8]).await.expect("the end"), 0);
        joined(sending).await.expect("the kernel sends and ends");
        joined(receiving).await.expect("the kernel receives what we sent");
        joined(kernel_reads_end(&kernel)).await.expect("the end");
        lab.assert_clean();
        drop((kernel, read.unsplit(write)));
        lab.event("CLOSED", |event| *event == Event::Closed(CloseReason::Finished)).await;
    });
}

fn joined_now<T>(thread: std::thread::JoinHandle<T>) -> T {
    thread.join().expect("the thread lives")
}

/// The kernel's end reads the end of the stream, and nothing before it.
fn kernel_reads_end(socket: &std::net::TcpStream) -> std::thread::JoinHandle<std::io::Result<()>> {
    let mut socket = socket.try_clone().expect("a descriptor");
    std::thread::spawn(move || match std::io::Read::read(&mut socket, &mut [0; 8])? {
        0 => Ok(()),
        more => Err(std::io::Error::other(format!("{more} bytes more"))),
    })
}
