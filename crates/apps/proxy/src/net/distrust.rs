//! What TLS finds wrong with a certificate.

use rustls::CertificateError;

use crate::failure::Distrust;

impl From<&CertificateError> for Distrust {
    fn from(problem: &CertificateError) -> Self {
        match problem {
            // An authority is found by its name, and then has not signed it.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::UnknownAuthority,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Self::OtherName
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYetValid,
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                Self::OtherPurpose
            }
            _ => Self::Unusable,
        }
    }
}
