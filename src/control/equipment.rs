//! What control needs beside the snapshot to act: passwords, and those who deliver alerts. It is put
//! together before the user changes, for files may be root's alone.

use crate::control::alert::{AlertError, Alerter};
use crate::control::passwords::{PasswordError, Passwords};
use crate::pure::config::Config;

/// What control acts with.
#[derive(Debug, Default)]
pub struct Equipment {
    /// What the files with secrets say.
    pub passwords: Passwords,
    /// Delivers alerts.
    pub alerter: Alerter,
}

/// It can't be put together.
#[derive(Debug, thiserror::Error)]
pub enum EquipmentError {
    /// A password can't be used.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// Alerts can't be delivered.
    #[error(transparent)]
    Alert(#[from] AlertError),
}

impl Equipment {
    /// What `config` asks for.
    ///
    /// # Errors
    /// [`EquipmentError`] where a file can't be used, or a thread can't be made.
    pub fn of(config: &Config) -> Result<Self, EquipmentError> {
        let passwords = Passwords::read(config)?;
        let alerter = Alerter::start(&config.alert, &passwords)?;
        Ok(Self { passwords, alerter })
    }
}
