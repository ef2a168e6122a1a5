//! Empty: see the manifest for what this package is for.
