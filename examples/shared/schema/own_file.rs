//! The SQLite file beside the program.

use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::Fault;

/// A file beside the program, or a draft of it if there is none yet.
pub(crate) enum OwnFile {
    There(PathBuf),
    Draft { draft: TempPath, file: PathBuf },
}

impl OwnFile {
    pub(crate) fn find(name: &str) -> Result<Self, Fault> {
        let file = std::env::current_exe()?.with_file_name(name);
        if file.exists() {
            return Ok(Self::There(file));
        }
        let folder = file.parent().map_or_else(PathBuf::new, Path::to_owned);
        let draft = tempfile::Builder::new().prefix(name).tempfile_in(folder)?.into_temp_path();
        Ok(Self::Draft { draft, file })
    }

    /// The URL of the draft, which is still to be filled.
    pub(crate) fn draft(&self) -> Option<String> {
        match self {
            Self::There(_) => None,
            Self::Draft { draft, .. } => Some(sqlite_url(draft)),
        }
    }

    /// The URL of the file, filled. Two runs may start at the same time: each fills a draft of its
    /// own, and the first to be ready gives it the name.
    pub(crate) fn filled(self) -> Result<String, Fault> {
        let file = match self {
            Self::There(file) => file,
            Self::Draft { draft, file } => {
                if let Err(fault) = draft.persist_noclobber(&file) {
                    file.exists().then_some(()).ok_or(fault.error)?;
                }
                file
            }
        };
        Ok(sqlite_url(&file))
    }
}

/// A path in a URL, whatever is in the path.
fn sqlite_url(file: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let write = |byte: u8| {
        if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    let path: String = file.as_os_str().as_encoded_bytes().iter().copied().map(write).collect();
    format!("sqlite://{path}")
}
