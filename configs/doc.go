// Package configs owns the configuration tree: its keys, defaults, loading
// from a file and the environment, and validation. It imports nothing of the
// product and opens nothing but the configuration file; what the values mean
// is up to the packages that cmd hands them to.
package configs
