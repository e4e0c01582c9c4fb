//! `kueue.x-k8s.io/v1beta1`: reserved. The older version is served and converted to [`crate::v1beta2`] later; nothing is
//! here yet.
