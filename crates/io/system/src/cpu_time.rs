use std::time::Duration;

/// Processor time that this process has used, all its threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In its own code.
    pub user: Duration,
    /// In the kernel, on its behalf.
    pub system: Duration,
}

impl CpuTime {
    /// Until now.
    #[must_use]
    pub fn of_process() -> Self {
        // SAFETY: `rusage` is plain numbers, for which zero is a value; getrusage only writes into it.
        #[allow(unsafe_code)]
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage
        };
        let duration = |time: libc::timeval| {
            Duration::from_secs(time.tv_sec.unsigned_abs())
                + Duration::from_micros(time.tv_usec.unsigned_abs())
        };
        Self { user: duration(usage.ru_utime), system: duration(usage.ru_stime) }
    }

    /// What was used since an earlier moment.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }

    /// User and system time together.
    #[must_use]
    pub fn total(self) -> Duration {
        self.user + self.system
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_time() {
        let before = CpuTime::of_process();
        let mut number = 1u64;
        while CpuTime::of_process().since(before).total() < Duration::from_millis(20) {
            number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005));
        }
        assert!(number != 0 && CpuTime::of_process().total() > before.total());
    }
}
