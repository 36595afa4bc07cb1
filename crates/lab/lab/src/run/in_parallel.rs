use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// What `work` gives for each of `items` and its number, in their order, by so many threads.
pub fn in_parallel<T: Sync, R: Send>(
    jobs: NonZeroUsize,
    items: &[T],
    work: impl Fn(usize, &T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(items.len()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.get() {
            scope.spawn(|| {
                while let number = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(item) = items.get(number)
                {
                    let result = work(number, item);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stand_in_the_order_of_what_they_are_of() {
        let three = NonZeroUsize::new(3).expect("not zero");
        let items: Vec<u64> = (0..100).collect();
        let sums = in_parallel(three, &items, |number, item| number as u64 + item);
        assert!(sums.into_iter().eq((0..100).map(|item| 2 * item)));
    }
}
