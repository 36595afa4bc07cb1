//! Memory of this process.

use std::fs;

/// Bytes of it that are in memory. What the kernel holds for its sockets is not counted.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Gives back to the system what was freed, which the C library keeps for later. It looks through all that is free, which takes milliseconds.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: it takes no pointer, and the library's own locks are held meanwhile.
        #[allow(unsafe_code)]
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_freed_is_given_back() {
        // Small pieces, which are kept for later.
        let pieces: Vec<Vec<u8>> = (0..200_000).map(|_| vec![1; 500]).collect();
        let last = vec![1; 500];
        let full = resident_bytes().expect("the system tells");
        drop(pieces);
        give_back();
        let left = resident_bytes().expect("the system tells");
        assert!(left + 50_000_000 < full, "{full} {left}");
        drop(last);
    }
}
