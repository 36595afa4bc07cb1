use std::io;
use std::path::PathBuf;

/// Why results can't be written or read; one line that names the file.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system said no.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {message}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A file of results was cut short or changed.
    #[error(
        "{}: is damaged ({message}); remove the folder {}, and run the experiment again",
        path.display(),
        path.parent().unwrap_or(path).display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// Another process runs the same experiment.
    #[error("{}: another process runs this experiment; wait for it, or choose another --out", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
}
